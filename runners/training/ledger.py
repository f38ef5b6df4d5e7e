"""The ledger: every episode that was dispatched, and whether it was trained on or dropped.

Invariant: an episode, by its id (task, sample, attempt), is dispatched once and then either trained at one update or
dropped with a reason; between two updates none is open but those of later updates. A resumed run dispatches
these again. ``ledger.jsonl`` holds a line for every event.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from agents.tree.episode import EpisodeId, Fault
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
        self._before: set[EpisodeId] = {(t, s, a) for t, s, a in state.get("open", ())} if state else set()
        """Those that were open when the run was stopped."""

    def dispatch(self, update: int, episodes: Iterable[EpisodeId]) -> None:
        new = list(episodes)
        if len(set(new)) != len(new) or not self._open.isdisjoint(new):
            raise LedgerError(f"update {update} dispatches an episode twice")
        self._open.update(new)
        for event, episodes in (
            ("dispatched", [episode for episode in new if episode not in self._before]),
            ("dispatched again", [episode for episode in new if episode in self._before]),
        ):
            if episodes:
                self.journal.write({"update": update, "event": event, "episodes": episodes})
        self.dispatched += len(set(new) - self._before)
        self._before.difference_update(new)
        self.journal.flush()

    def go_on(self, episodes: Iterable[EpisodeId]) -> None:
        """Episodes that were being played when the run was stopped, and that a checkpoint holds: they are open."""
        kept = set(episodes)
        self._open |= kept
        self._before -= kept

    def train(self, update: int, episodes: Iterable[EpisodeId]) -> None:
        done = list(episodes)
        self._settle(update, done)
        self.trained += len(done)
        self.journal.write({"update": update, "event": "trained", "episodes": done})

    def drop(self, update: int, episode: EpisodeId, reason: str) -> None:
        self._settle(update, [episode])
        self.dropped += 1
        self.journal.write({"update": update, "event": "dropped", "episodes": [episode], "reason": reason})

    def broke(self, update: int, faults: Iterable[Fault], retries: int) -> None:
        """Drops attempts whose environment broke, and dispatches the next one of each, up to ``retries``."""
        for fault in faults:
            task, sample, attempt = fault.job.id
            self.drop(update, fault.job.id, str(fault))
            if attempt < retries:
                self.dispatch(update, [(task, sample, attempt + 1)])

    def end(self, update: int) -> None:
        """Drops what was dispatched for later updates: the run ends with this one."""
        self._open |= self._before
        self._before = set()
        for episode in sorted(self._open):
            self.drop(update, episode, "the run ended")

    def _settle(self, update: int, episodes: list[EpisodeId]) -> None:
        if len(set(episodes)) != len(episodes) or not self._open.issuperset(episodes):
            raise LedgerError(f"update {update} settles an episode that is not open")
        self._open.difference_update(episodes)

    def state(self, ahead: Set[EpisodeId] = frozenset()) -> dict[str, Any]:
        """Raises LedgerError while an episode is open that is not ``ahead``, one of a later update, or one is lost."""
        if self._open != ahead:
            raise LedgerError(f"{len(self._open ^ ahead)} episodes were neither trained nor dropped")
        counts = [self.dispatched, self.trained, self.dropped]
        return {"mark": self.journal.mark(), "counts": counts, "open": sorted(self._open | self._before)}
