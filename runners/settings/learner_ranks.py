"""The processes that learn together: what ``--learner`` names. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

ALONE = "local"
DDP, FSDP = "ddp", "fsdp"
MOST_RANKS = 64


@dataclass(frozen=True)
class LearnerRanks:
    """How many processes learn, and whether each holds all weights (`ddp`) or a part of the frozen ones (`fsdp`)."""

    kind: str
    size: int

    def __str__(self) -> str:
        held = "a part of the frozen weights" if self.kind == FSDP else "all weights"
        return f"{self.size} processes, each with {held}"

    @classmethod
    def of(cls, text: str) -> LearnerRanks:
        """Raises ValueError for anything but local, ddp:N and fsdp:N."""
        kind, _, count = text.partition(":")
        if text == ALONE:
            return cls(ALONE, 1)
        if kind not in (DDP, FSDP) or not (count.isascii() and count.isdecimal()):
            raise ValueError(f"learner must be local, ddp:N or fsdp:N with N processes, not {text!r}")
        if not 2 <= int(count) <= MOST_RANKS:
            raise ValueError(f"learner {text}: the number of processes must lie in 2..{MOST_RANKS}")
        return cls(kind, int(count))
