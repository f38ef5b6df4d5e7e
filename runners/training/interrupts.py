"""SIGTERM and Ctrl-C: they end a run at a point from which it can resume.

Invariant: nothing is interrupted inside ``shielded()``; a signal that comes there takes effect when it is left. A
second one ends the process at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """The process was asked to stop; not an Exception, so that nothing takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Interrupts:
    """Turns the first SIGTERM or SIGINT into Stopped. Use as a context manager, in the main thread."""

    def __init__(self) -> None:
        self._shields = 0
        self._pending: int | None = None

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._caught) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Nothing in here is interrupted. An error goes on: what it left half done is not to be saved."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if not self._shields and self._pending is not None:
            raise Stopped(self._pending)

    def _caught(self, number: int, _: FrameType | None) -> None:
        for caught in self._before:
            signal.signal(caught, signal.SIG_DFL)
        self._pending = number
        if not self._shields:
            raise Stopped(number)
