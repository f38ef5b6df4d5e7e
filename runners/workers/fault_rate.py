"""The share of attempts that broke lately, above which a program stops."""

from collections import deque

from agents.rollout.settings import FaultSettings
from agents.tree.episode import Fault
from runners.command_line.errors import UserError

_WINDOW, _LEAST = 200, 20
"""Attempts that the fault rate covers, newest first, and attempts without which there is none."""


class FaultRate:
    """Counts attempts, in the order in which they are added."""

    def __init__(self, faults: FaultSettings) -> None:
        self.faults = faults
        self._recent: deque[tuple[int, int]] = deque()
        """(faults, attempts) of the newest portions."""

    def add(self, broken: int, attempts: int, newest: Fault | None) -> None:
        """Raises UserError when more of the last attempts broke than the settings allow."""
        self._recent.append((broken, attempts))
        broken, attempts = (sum(column) for column in zip(*self._recent, strict=True))
        while attempts - self._recent[0][1] >= _WINDOW:
            gone = self._recent.popleft()
            broken, attempts = broken - gone[0], attempts - gone[1]
        if attempts >= _LEAST and broken > self.faults.max_rate * attempts:
            raise UserError(
                f"the environment broke in {broken} of the last {attempts} attempts, most recently: "
                f"{newest or 'earlier'}; fix it, or raise --faults.max-rate"
            )
