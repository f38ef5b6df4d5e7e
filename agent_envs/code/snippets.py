"""The part of a line that is changed, with as little around it as names the place.

Invariant: the old part stands in the text once, and with the new one in its place the text is the changed one.
"""

from __future__ import annotations

import re

from agent_envs.code.hunks import Hunk
from agent_envs.code.lexicon import BEFORE, BETWEEN
from agent_envs.code.view import lines_of

_PIECE = re.compile(
    f" (?:{'|'.join(map(re.escape, sorted(['not in', *BETWEEN], key=len, reverse=True)))}) "
    rf"|\b(?:{'|'.join(BEFORE)}) |[,:] |[A-Za-z]+|\d+| +|.",
    re.DOTALL,
)
"""As the tokenizer that is made from `lexicon` cuts them, so that a part begins and ends where a token does."""
LEFT, RIGHT = 2, 1
"""Words and signs around a change that are quoted with it."""


def pieces(line: str) -> list[str]:
    """Words and signs of a line; a sign between blanks holds them."""
    return _PIECE.findall(line)


def snippet(text: str, hunk: Hunk) -> tuple[str, str] | None:
    """(old part, new part) of a change; None where it is not one of a single line, or where the line stands twice."""
    if hunk.first != hunk.last or len(hunk.lines) != 1:
        return None
    old, new = pieces(lines_of(text)[hunk.first - 1]), pieces(hunk.lines[0])
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    head, tail = max(0, head - LEFT), max(0, tail - RIGHT)
    while True:
        part = "".join(old[head : len(old) - tail])
        if part.strip() and text.find(part) == text.rfind(part):
            return part, "".join(new[head : len(new) - tail])
        if not head and not tail:
            return None
        head, tail = (head - 1, tail) if head else (head, tail - 1)
