"""An index of the rows that already hold the beginning of a prompt (a group samples one prompt many times).

Invariant: a row is listed only while its cache holds the keys and values of the listed tokens under the present policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

WORTH = 16
"""Shorter common beginnings are encoded again: copying them gains nothing."""
LOOK_AT = 32
"""This many of the latest prompts that begin alike are compared."""


@dataclass(frozen=True)
class Match:
    """``length`` tokens of the prompt lie in ``row``."""

    row: int = -1
    length: int = 0
    better_later: bool = False
    """A prompt that shares clearly more is being read in the forward that is being put together."""


class Prefixes:
    """Prompts by row, found by their first tokens."""

    def __init__(self) -> None:
        self._prompt: dict[int, np.ndarray] = {}
        self._rows: dict[tuple[int, ...], dict[int, None]] = {}
        self._reading: set[int] = set()

    def add(self, row: int, prompt: Sequence[int]) -> None:
        """``row`` will hold ``prompt`` after the forward that is being put together."""
        if len(prompt) > WORTH:
            self._prompt[row] = np.array(prompt, dtype=np.int64)
            self._rows.setdefault(tuple(prompt[:WORTH]), {})[row] = None
            self._reading.add(row)

    def encoded(self) -> None:
        """That forward is put together: its rows can be copied from the next one on."""
        self._reading.clear()

    def drop(self, row: int) -> None:
        """``row`` is about to be overwritten."""
        prompt = self._prompt.pop(row, None)
        if prompt is not None:
            key = tuple(prompt[:WORTH].tolist())
            del self._rows[key][row]
            if not self._rows[key]:
                del self._rows[key]

    def match(self, prompt: Sequence[int]) -> Match:
        """The longest common beginning, at most all but the last token (whose logits are needed)."""
        if len(prompt) <= WORTH:
            return Match()
        mine = np.array(prompt[:-1], dtype=np.int64)
        best = {False: (0, -1), True: (0, -1)}
        for row in islice(reversed(self._rows.get(tuple(prompt[:WORTH]), {})), LOOK_AT):
            other = self._prompt[row]
            n = min(len(mine), len(other))
            differs = mine[:n] != other[:n]
            length = int(differs.argmax()) if differs.any() else n
            reading = row in self._reading
            best[reading] = max(best[reading], (length, row))
            if length == len(mine) and not reading:
                break
        (length, row), (coming, _) = best[False], best[True]
        return Match(row, length, better_later=coming >= length + WORTH)
