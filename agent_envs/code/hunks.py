"""Differences between two versions of a file, as ranges of lines, and as parts of a line, that are replaced.

Invariants: applying the hunks of two texts to the first, from the last one to the first one, gives the second. The old
part of a snippet stands in its line once, and with the new one in its place the line is the changed one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from agent_envs.code.lexicon import BEFORE, BETWEEN
from agent_envs.code.view import lines_of

_MANY = 300
"""So many lines that may differ are not compared with each other: that takes time in proportion to their square."""

_PIECE = re.compile(
    f" (?:{'|'.join(map(re.escape, sorted(['not in', *BETWEEN], key=len, reverse=True)))}) "
    rf"|\b(?:{'|'.join(BEFORE)}) |[,:] |[A-Za-z]+|\d+| +|.",
    re.DOTALL,
)
"""As the tokenizer that is made from `lexicon` cuts them, so that a part begins and ends where a token does."""


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
    head, tail = _shared(old, new)
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(a) + len(b) > _MANY or not a or not b:
        return (Hunk(head + 1, head + len(a), tuple(b)),) if a or b else ()
    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return tuple(
        Hunk(head + i + 1, head + i_end, tuple(b[j:j_end])) for kind, i, i_end, j, j_end in matched if kind != "equal"
    )


def pieces(line: str) -> list[str]:
    """Words and signs of a line; a sign between blanks holds them."""
    return _PIECE.findall(line)


def snippet(text: str, hunk: Hunk) -> tuple[str, str] | None:
    """(old part, new part) of a change, with just enough context to be unique in the line.

    None where it is not a change of a single line into a single line.
    """
    if hunk.first != hunk.last or len(hunk.lines) != 1:
        return None
    line = lines_of(text)[hunk.first - 1]
    old, new = pieces(line), pieces(hunk.lines[0])
    head, tail = _shared(old, new)
    while True:
        part = "".join(old[head : len(old) - tail])
        if part.strip() and line.find(part) == line.rfind(part):
            return part, "".join(new[head : len(new) - tail])
        if not head and not tail:
            return None
        head, tail = (head - 1, tail) if head else (head, tail - 1)


def _shared(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many items two lists have in common at their beginnings, and then at their ends."""
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    return head, tail
