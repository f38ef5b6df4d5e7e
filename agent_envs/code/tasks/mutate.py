"""Bugs: every small mistake of a known kind that could have been made in a text.

Invariant: a mutant is one edit of one line, which may take the line out or move it; all other text stays, byte for
byte, and the result is Python. Which mutants there are, and in which order, depends on the text alone.

Nothing is run here. Whether a mutant ends, and what it gives, is seen in a sandbox (`agent_envs.code.tasks.trial`).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from agent_envs.code.tasks import mistakes
from agent_envs.code.tasks.settings import Operator
from agent_envs.code.tasks.text import Text


@dataclass(frozen=True)
class Mutant:
    """One edit of a text."""

    operator: Operator
    start: int
    end: int
    """Characters ``start`` to ``end`` (left out) of the original …"""
    new: str
    """… are replaced by this."""

    def apply(self, text: str) -> str:
        """The text with the bug."""
        return text[: self.start] + self.new + text[self.end :]

    def line(self, text: str) -> int:
        """The number of the line that it changes, from 1."""
        return text.count("\n", 0, self.start) + 1


def mutants(source: str) -> list[Mutant]:
    """All bugs that the operators make in a text, which may be anybody's; two that give the same text count once.

    Raises SyntaxError for what is no Python or not ASCII, RecursionError or MemoryError for what is nested too deep.
    """
    text = Text(source)
    seen = {source}
    result = []
    for mutant in _all(text):
        changed = mutant.apply(source)
        if changed not in seen and _is_python(changed):
            seen.add(changed)
            result.append(mutant)
    return result


def _all(text: Text) -> Iterator[Mutant]:
    for node in ast.walk(text.tree):
        if text.above(node, ast.JoinedStr):
            continue  # Python does not tell where the parts of an f-string stand
        for operator, find in mistakes.OPERATORS.items():
            for start, end, new in find(text, node):
                if "\n" not in text.source[start : end - 1]:
                    yield Mutant(operator, start, end, new)


def _is_python(source: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `1 is x` is odd, and still Python
        try:
            compile(source, "<mutant>", "exec", dont_inherit=True)
        except SyntaxError:
            return False
        return True
