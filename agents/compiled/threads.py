"""Calls of C at once: ctypes lets other threads run while one is in C."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Makes all calls, each in a thread of its own where there are several. Raises what one of them raises."""
    if len(calls) == 1:
        return calls[0]()
    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()
