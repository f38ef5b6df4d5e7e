"""Which processors the processes of a worker use.

Invariant: a program may use every processor that the sandbox may; only what serves it is kept to one.
"""

from __future__ import annotations

import contextlib
import os

_all: set[int] = set()


def keep_to_own(worker: int, workers: int) -> None:
    """With as many workers as processors, keeps this process and its forks to the processor of number ``worker``.

    There is no other processor to move to then, and memory that was shared by a fork is written at less cost by
    processes that take turns on one processor. With fewer workers, the next run is made ready on another one.
    """
    processors = os.sched_getaffinity(0)
    if 1 < workers == len(processors):
        with contextlib.suppress(OSError):  # forbidden: runs cost a little more
            os.sched_setaffinity(0, {sorted(processors)[worker]})
            _all.update(processors)


def let_go() -> None:
    """Takes back `keep_to_own`, for this process and its forks."""
    if _all:
        os.sched_setaffinity(0, _all)
