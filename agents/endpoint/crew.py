"""Threads that work through a list, and never keep the process from ending.

Invariant: results are in the order of the items, whichever was quicker; after the first error, or when the caller is
interrupted, ``gone`` is set and nothing new is begun.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Crew:
    """Up to ``size`` daemon threads: one that hangs in a call does not keep the process from ending."""

    def __init__(self, size: int, gone: threading.Event) -> None:
        self.size, self.gone = size, gone

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], watch: Callable[[], object] = lambda: None
    ) -> list[Result]:
        """``work`` of every item. ``watch`` is called again and again meanwhile. Raises the first error of either."""
        done: dict[int, Result] = {}
        errors: list[Exception] = []
        todo, lock = iter(range(len(items))), threading.Lock()

        def run() -> None:
            while not self.gone.is_set():
                with lock:
                    i = next(todo, None)
                if i is None:
                    return
                try:
                    done[i] = work(items[i])
                except Exception as error:  # it is raised where it can be seen
                    errors.append(error)
                    self.gone.set()

        threads = [threading.Thread(target=run, daemon=True) for _ in range(min(self.size, len(items)))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive() and not errors:
                    thread.join(0.1)
                    watch()
        except BaseException:
            self.gone.set()
            raise
        if errors:
            raise errors[0]
        return [done[i] for i in range(len(items))]
