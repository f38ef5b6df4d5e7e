"""Replay: minibatches of the last updates, on which the critic trains again.

Invariant: what is replayed in an update depends on the seed, the number of the update and the minibatches that are
kept; a checkpoint holds all of these, about 50 bytes per token.

Legend: S states, D width of the model.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from agents.tree import Batch

KEY = "replay"
"""Beginning of the names of what is kept: ``replay.UPDATE.NUMBER.FIELD``."""
READ = "read_SD"


@dataclass(frozen=True)
class Kept:
    """One minibatch, on the CPU."""

    batch: Batch
    read_SD: Tensor | None = None
    """What the value head read at each critic prompt when the update learned from these episodes; None without one."""


class Replay:
    """Keeps the minibatches of the last ``updates`` updates, and draws ``steps`` of them after each."""

    def __init__(self, updates: int, steps: int, seed: int) -> None:
        self.updates, self.steps, self.seed = updates, steps, seed
        self.kept: dict[int, list[Kept]] = {}

    def keep(self, update: int, minibatches: Sequence[Kept]) -> None:
        """Adds those of an update; the oldest ones leave. No critic reads what is left out here."""
        self.kept[update] = [
            Kept(
                replace(kept.batch, anchor_S=("",) * len(kept.batch.anchor_S), ref_logp_T=None).to("cpu"),
                None if kept.read_SD is None else kept.read_SD.cpu(),
            )
            for kept in minibatches
        ]
        self.kept = {number: self.kept[number] for number in sorted(self.kept)[-self.updates :]}

    def drawn(self, update: int) -> list[Kept]:
        """``steps`` minibatches, each as often as any other, to within one."""
        held = [kept for minibatches in self.kept.values() for kept in minibatches]
        rng = random.Random(f"{self.seed} replay {update}")
        result: list[Kept] = []
        while held and len(result) < self.steps:
            result += rng.sample(held, len(held))
        return result[: self.steps]

    def tensors(self) -> dict[str, Tensor]:
        """All that is kept, by name."""
        result: dict[str, Tensor] = {}
        for update, minibatches in self.kept.items():
            for i, kept in enumerate(minibatches):
                columns = {f.name: getattr(kept.batch, f.name) for f in fields(Batch)}
                columns |= {"trees": torch.tensor(kept.batch.trees), READ: kept.read_SD}
                place = f"{KEY}.{update}.{i}"
                result |= {f"{place}.{name}": x for name, x in columns.items() if isinstance(x, Tensor)}
        return result

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes what ``tensors`` gave."""
        columns: dict[tuple[int, int], dict[str, Any]] = {}
        for key, tensor in tensors.items():
            _, update, place, name = key.split(".")
            columns.setdefault((int(update), int(place)), {})[name] = tensor
        self.kept = {}
        for (number, _), result in sorted(columns.items()):
            result |= {"trees": int(result["trees"]), "anchor_S": ("",) * result["prev_S"].numel()}
            read_SD = result.pop(READ, None)
            self.kept.setdefault(number, []).append(Kept(Batch(**result), read_SD))
