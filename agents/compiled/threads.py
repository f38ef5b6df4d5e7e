"""Calls of C at once: ctypes lets other threads run while one is in C."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread, local
from typing import TypeAlias

import torch

_allowed: int = 0
_within = local()
"""``one``: whether this thread makes one of several calls."""


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
    """In how many threads C may compute; within a call of several, in its own."""
    return 1 if getattr(_within, "one", False) else _allowed or torch.get_num_threads()


def shares(count: int, least: int) -> list[tuple[int, int]]:
    """Where each of the parts of ``count`` begins and ends that are computed at once, none smaller than ``least`` if
    there are several."""
    parts = max(1, min(allowed(), count // least))
    return list(pairwise(count * part // parts for part in range(parts + 1)))


def in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Makes all calls, each in a thread of its own where there are several. Raises what one of them raises."""
    if len(calls) == 1:
        return calls[0]()
    todo, ended, others = _threads(os.getpid(), len(calls) - 1), _Ended(), 0
    of_torch = torch.get_num_threads()
    try:
        for call in calls[1:]:
            todo.put((call, of_torch, ended))
            others += 1
        _alone(calls[0])
    finally:
        errors = _taken(ended, others)
    if errors:
        raise errors[0]


_Ended: TypeAlias = SimpleQueue[BaseException | None]
"""What comes when a call has ended: its error, or None."""


def _taken(ended: _Ended, calls: int) -> list[BaseException]:
    """The errors of calls. Returns, or raises what a signal does, when all have ended: what they write to must not go
    before."""
    errors: list[BaseException] = []
    try:
        while calls:
            error = ended.get()
            calls -= 1
            errors += [error] if error else []
    except BaseException:
        _taken(ended, calls)
        raise
    return errors


_Todo: TypeAlias = SimpleQueue[tuple[Callable[[], None], int, _Ended]]
"""Calls, the threads that PyTorch may use within each, and where to say that it has ended."""


@cache
def _threads(process: int, count: int) -> _Todo:
    """Feeds ``count`` threads of a process, which wait for calls. A process that was forked has none of its parent's.

    A queue and nothing more: a future of `concurrent.futures` takes five times as long to be handed over.
    """
    todo: _Todo = SimpleQueue()
    for number in range(count):
        Thread(target=_serve, args=[todo], name=f"compiled_{number}", daemon=True).start()
    return todo


def _alone(call: Callable[[], None]) -> None:
    """Makes one of several calls: within it there are no further ones, for which no thread might be left."""
    before, _within.one = getattr(_within, "one", False), True
    try:
        call()
    finally:
        _within.one = before


def _serve(todo: _Todo) -> None:
    while True:
        call, of_torch, ended = todo.get()
        error = None
        try:
            if torch.get_num_threads() != of_torch:  # each thread has its own number, and keeps what it began with
                torch.set_num_threads(of_torch)
            _alone(call)
        except BaseException as raised:
            error = raised
        ended.put(error)
        del call, ended, error  # nothing is held while it waits
