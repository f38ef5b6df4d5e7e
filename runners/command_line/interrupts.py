"""Ctrl-C and SIGTERM while nothing is there to be saved: one line, and what was begun is removed."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn


def quit_at_once() -> None:
    """From here on they end the process with one line: many a library makes its own error of an interrupted import.

    Leaves alone who ignores a signal or has a handler.
    """
    _change({signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}, _quit)
    _change({signal.SIGTERM: _raise}, _quit)


def raise_again() -> None:
    """From here on they raise KeyboardInterrupt, with the number of the signal."""
    _change({signal.SIGINT: _quit}, signal.default_int_handler)
    _change({signal.SIGTERM: _quit}, _raise)


@contextmanager
def importing() -> Iterator[None]:
    """In here they end the process with one line."""
    quit_at_once()
    try:
        yield
    finally:
        raise_again()


def _change(before: dict[signal.Signals, Any], after: Any) -> None:
    """Gives a signal another handler where it has this one."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, after)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _quit(number: int, frame: FrameType | None) -> None:
    end_now(number)


def end_now(number: int) -> NoReturn:
    """Ends the process with one line, whatever its threads are doing."""
    os.write(2, b"error: interrupted\n")
    os._exit(128 + number)
