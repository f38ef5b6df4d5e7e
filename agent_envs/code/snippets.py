"""The changed part of a line, with just enough context to be unique in the line.

Invariant: the old part stands in the line once, and with the new one in its place the line is the changed one.
"""

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


def pieces(line: str) -> list[str]:
    """Words and signs of a line; a sign between blanks holds them."""
    return _PIECE.findall(line)


def snippet(text: str, hunk: Hunk) -> tuple[str, str] | None:
    """(old part, new part) of a change; None where it is not one of a single line into a single line."""
    if hunk.first != hunk.last or len(hunk.lines) != 1:
        return None
    line = lines_of(text)[hunk.first - 1]
    old, new = pieces(line), pieces(hunk.lines[0])
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    while True:
        part = "".join(old[head : len(old) - tail])
        if part.strip() and line.find(part) == line.rfind(part):
            return part, "".join(new[head : len(new) - tail])
        if not head and not tail:
            return None
        head, tail = (head - 1, tail) if head else (head, tail - 1)
