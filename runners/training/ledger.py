"""The ledger: every episode that was dispatched, and whether it was trained on or dropped.

Invariant: an episode, by its id (task, sample, attempt), is dispatched once and then either trained at one update or
dropped with a reason; between two updates none is open. ``ledger.jsonl`` holds a line for every event.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.tree.episode import EpisodeId
from runners.run_folder.journal import Journal


class LedgerError(RuntimeError):
    """An episode would be counted twice, or lost: a mistake in the program."""


class Ledger:
    """The account of a run. ``state`` is what a checkpoint keeps of it."""

    def __init__(self, path: Path, state: Mapping[str, Any] | None = None) -> None:
        self.journal = Journal(path, state["mark"] if state else None)
        counts: Sequence[int] = state["counts"] if state else (0, 0, 0)
        self.dispatched, self.trained, self.dropped = counts
        self._open: set[EpisodeId] = set()

    def dispatch(self, update: int, episodes: Iterable[EpisodeId]) -> None:
        new = list(episodes)
        if len(set(new)) != len(new) or not self._open.isdisjoint(new):
            raise LedgerError(f"update {update} dispatches an episode twice")
        self._open.update(new)
        self.dispatched += len(new)
        self.journal.write({"update": update, "event": "dispatched", "episodes": new})
        self.journal.flush()

    def train(self, update: int, episodes: Iterable[EpisodeId]) -> None:
        done = list(episodes)
        self._settle(update, done)
        self.trained += len(done)
        self.journal.write({"update": update, "event": "trained", "episodes": done})

    def drop(self, update: int, episode: EpisodeId, reason: str) -> None:
        self._settle(update, [episode])
        self.dropped += 1
        self.journal.write({"update": update, "event": "dropped", "episodes": [episode], "reason": reason})

    def _settle(self, update: int, episodes: list[EpisodeId]) -> None:
        if len(set(episodes)) != len(episodes) or not self._open.issuperset(episodes):
            raise LedgerError(f"update {update} settles an episode that is not open")
        self._open.difference_update(episodes)

    def state(self) -> dict[str, Any]:
        """Raises LedgerError while an episode is open."""
        if self._open:
            raise LedgerError(f"{len(self._open)} episodes were neither trained nor dropped")
        return {"mark": self.journal.mark(), "counts": [self.dispatched, self.trained, self.dropped]}
