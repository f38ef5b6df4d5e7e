"""A memo of runs: the same files with the same question are not run again.

Invariant: only what a run gave is kept, never a fault; it is bounded, and short answers only are kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

_LONGEST = 4096


class Memo:
    """Remembers the last ``size`` answers; may be used by several threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._said: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def ask(
        self,
        question: object,
        answer: Callable[[], tuple[str, ...]],
        keeps: Callable[[tuple[str, ...]], bool] = lambda answers: True,
    ) -> tuple[str, ...]:
        """The answer to a question, which is told from others by its `repr`; raises what ``answer`` raises. One that
        ``keeps`` denies is asked for again the next time."""
        key = blake2b(repr(question).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            if key in self._said:
                self._said.move_to_end(key)
                return self._said[key]
        answers = answer()
        if sum(map(len, answers)) <= _LONGEST and keeps(answers):
            with self._lock:
                self._said[key] = answers
                while len(self._said) > self._size:
                    self._said.popitem(last=False)
        return answers
