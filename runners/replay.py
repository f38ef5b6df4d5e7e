"""The minibatches of the last updates, from which the critic learns again.

Invariant: what is replayed in an update depends on the seed, the number of the update and the minibatches that are
kept; a checkpoint holds all of these, about 50 bytes per token.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from agents.tree import Batch

KEY = "replay"
"""Beginning of the names of what is kept: ``replay.UPDATE.NUMBER.FIELD``."""


class Replay:
    """Keeps the minibatches of the last ``updates`` updates, and draws ``steps`` of them after each."""

    def __init__(self, updates: int, steps: int, seed: int) -> None:
        self.updates, self.steps, self.seed = updates, steps, seed
        self.kept: dict[int, list[Batch]] = {}

    def keep(self, update: int, batches: Sequence[Batch]) -> None:
        """Adds those of an update; the oldest ones leave. No critic reads what is left out here."""
        self.kept[update] = [
            replace(batch, anchor_S=("",) * len(batch.anchor_S), ref_logp_T=None).to("cpu") for batch in batches
        ]
        self.kept = {number: self.kept[number] for number in sorted(self.kept)[-self.updates :]}

    def drawn(self, update: int) -> list[Batch]:
        """``steps`` minibatches, each as often as any other, to within one; they are kept on the CPU."""
        held = [batch for batches in self.kept.values() for batch in batches]
        rng = random.Random(f"{self.seed} replay {update}")
        found: list[Batch] = []
        while held and len(found) < self.steps:
            found += rng.sample(held, len(held))
        return found[: self.steps]

    def tensors(self) -> dict[str, Tensor]:
        """All that is kept, by name."""
        found: dict[str, Tensor] = {}
        for update, batches in self.kept.items():
            for i, batch in enumerate(batches):
                columns = {f.name: getattr(batch, f.name) for f in fields(Batch)} | {"trees": torch.tensor(batch.trees)}
                place = f"{KEY}.{update}.{i}"
                found |= {f"{place}.{name}": x for name, x in columns.items() if isinstance(x, Tensor)}
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes what ``tensors`` gave."""
        columns: dict[tuple[int, int], dict[str, Any]] = {}
        for key, tensor in tensors.items():
            _, update, place, name = key.split(".")
            columns.setdefault((int(update), int(place)), {})[name] = tensor
        self.kept = {}
        for (number, _), found in sorted(columns.items()):
            found |= {"trees": int(found["trees"]), "anchor_S": ("",) * found["prev_S"].numel()}
            self.kept.setdefault(number, []).append(Batch(**found))
