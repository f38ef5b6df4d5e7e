"""The claims that a chain of thoughts makes about a generated problem, and the first wrong one.

Invariant: only claims of the form ``B = … = 85`` count, one letter after the other; a guess and its rejection claim
nothing. The text may come from any model: it is searched in bounded pieces, and no number longer than nine digits is
read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from agent_envs.math.problem import LETTERS, Chain
from agent_envs.math.thought_kinds import Factor, kind_of

_LOOK_AT = 4000
_CLAIM = re.compile(r"([A-G])\s?=([^,，.。;；:：?？!！\n]{0,200})")
_NUMBER = re.compile(r"\s*(?:\$|\\\()?\s*(-?[0-9]{1,9})\s*(?:\$|\\\))?\s*")
_SILENT = frozenset({Factor.GUESS, Factor.REJECT, Factor.GOAL, Factor.PLAN, Factor.SPLIT})


@dataclass(frozen=True)
class Progress:
    """How far a chain of thoughts has come."""

    values: tuple[int, ...]
    """Claimed values of the letters, the first letter included."""
    wrong: int | None = None
    """The first step whose value does not follow from the one before it."""
    fresh: bool = False
    """Whether the newest thought is what went wrong."""

    @property
    def done(self) -> int:
        """Steps that were taken, rightly or not."""
        return len(self.values) - 1


def progress(chain: Chain, factors: Sequence[str]) -> Progress:
    """Reads all thoughts so far."""
    values, changed = [chain.start], False
    for text in factors:
        changed = False
        if kind_of(text) in _SILENT:
            continue
        for letter, claimed in _claims(text[:_LOOK_AT]):
            at = LETTERS.index(letter)
            if 1 <= at <= min(len(values), len(chain.steps)) and values[at : at + 1] != [claimed]:
                # Whatever was made from the old value is no longer claimed.
                values[at:] = [claimed]
                changed = True
    wrong = next((i for i in range(len(values) - 1) if values[i + 1] != chain.value(i, values[i])), None)
    return Progress(tuple(values), wrong, changed and wrong == len(values) - 2)


@lru_cache(maxsize=1024)
def _claims(text: str) -> tuple[tuple[str, int], ...]:
    claims = []
    for letter, clause in _CLAIM.findall(text):
        number = _NUMBER.fullmatch(clause.rpartition("=")[2])
        if number:
            claims.append((letter, int(number[1])))
    return tuple(claims)
