"""A minibatch of an update: its trees, packed, and what its steps started from and came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from torch import Tensor

from agents.tree import Batch, Forward
from agents.tree.chunked_backward import Kept
from agents.tree.episode import EpisodeId
from agents.tree.merge import Tree

NOT_FINITE = "the gradient was not finite"
TOO_FAR = "the update had moved the policy beyond max_kl"


@dataclass
class Minibatch:
    """A minibatch: its trees, packed. ``prepare`` adds what the trainer's own forward before the update tells."""

    trees: Sequence[Tree]
    batch: Batch
    old: Forward | None = None
    credit: Any = None
    read_SD: Tensor | None = None
    """What the values were read from when the last gradient was taken, where the head alone learns again."""
    weight_T: Tensor | None = None
    """What each token's gradient is multiplied by, where the engine's numbers are corrected for."""
    mismatch: dict[str, float] = field(default_factory=dict)
    kept: Kept = field(default_factory=list)
    """The forward before the update with its graph, where its own step can start from that."""
    unmeasured: bool = False
    """Whether its next forward tells how far the engine's numbers, which it started from, were off."""
    moved: float | None = None
    """How far the policy was from the one that its ratios start from when the last gradient was taken, if one was."""
    skipped: list[str | None] = field(default_factory=list)
    """For each step that was tried with it, why it was not taken, or None."""

    def untrained(self) -> str | None:
        """Why no step on it stays; None where one does."""
        return None if None in self.skipped else next(iter(self.skipped), TOO_FAR)

    def episode_ids(self) -> set[EpisodeId]:
        return {episode.job.id for tree in self.trees for episode, _ in tree.paths}


def cut_evenly(trees: Sequence[Tree], parts: int) -> list[Sequence[Tree]]:
    """As many stretches as asked, whose lengths differ by one at most; fewer where there are fewer trees."""
    parts = min(parts, len(trees))
    ends = [-(-len(trees) * i // parts) for i in range(parts + 1)] if parts else [0]
    return [trees[a:b] for a, b in pairwise(ends)]
