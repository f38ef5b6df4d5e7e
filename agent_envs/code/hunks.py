"""Differences between two versions of a file, as ranges of lines that are replaced.

Invariant: applying the hunks of two texts to the first, from the last one to the first one, gives the second.
"""

from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from agent_envs.code.view import lines_of

_MANY = 300
"""So many lines that may differ are not compared with each other: that takes time in proportion to their square."""


@dataclass(frozen=True)
class Hunk:
    """Lines ``first`` to ``last``, from 1, become ``lines``; they are inserted where ``last`` = ``first`` - 1."""

    first: int
    last: int
    lines: tuple[str, ...]


@lru_cache(maxsize=16384)
def hunks(before: str, after: str) -> tuple[Hunk, ...]:
    """The ranges of lines that differ, from first to last."""
    old, new = lines_of(before), lines_of(after)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(a) + len(b) > _MANY or not a or not b:
        return (Hunk(head + 1, head + len(a), tuple(b)),) if a or b else ()
    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return tuple(
        Hunk(head + i + 1, head + i_end, tuple(b[j:j_end])) for kind, i, i_end, j, j_end in matched if kind != "equal"
    )
