"""Calls of C at once: ctypes lets other threads run while one is in C."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache

import torch

MOST = 1024
"""Threads of a process."""
_allowed: int = 0


def allow(count: int) -> None:
    """C computes in up to ``count`` threads from now on; 0: in as many as PyTorch, which is how it begins."""
    global _allowed
    _allowed = count


@contextmanager
def allowing(count: int) -> Iterator[None]:
    """In here it does so."""
    before = _allowed
    allow(count)
    try:
        yield
    finally:
        allow(before)


def allowed() -> int:
    """In how many threads C may compute."""
    return _allowed or torch.get_num_threads()


def in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Makes all calls, each in a thread of its own where there are several. Raises what one of them raises."""
    if len(calls) == 1:
        return calls[0]()
    others: list[Future[None]] = []
    try:
        others += [_threads(os.getpid()).submit(call) for call in calls[1:]]
        calls[0]()
    finally:
        _await(others)
    for other in others:
        other.result()


def _await(calls: list[Future[None]]) -> None:
    """Returns, or raises what a signal does, when they have ended: what they write to must not go before."""
    try:
        wait(calls)
    except BaseException:
        wait(calls)
        raise


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Those of a process, which wait for calls. A process that was forked has none of its parent's."""
    return ThreadPoolExecutor(MOST, "compiled")
