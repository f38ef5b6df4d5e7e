"""Reads labels out of a judge's reply.

Invariant: labels come from ``Step i Judgment: GOOD`` lines of the reply alone, and only when they number all steps,
from 0 or from 1. Anything else is None for every step: half a judgment is none.
"""

import re

from agents.judge.base import Labels

NAMED = re.compile(r"step[\s*_`-]*(\d{1,6})[\s*_`.-]*judge?ment", re.IGNORECASE | re.ASCII)
"""What begins a judgment. A text that is judged must not hold it (`prompt.quoted`)."""
_LINE = re.compile(
    NAMED.pattern + r"[\s*_`]*(?::|：)[\s*_`\"']*(good|bad)\b(?!\s*(?:[/|]|or\b|and\b))", re.IGNORECASE | re.ASCII
)


def parse_judgments(reply: str, steps: int) -> Labels:
    """Labels of ``steps`` steps; later lines of the same step win. All None where the numbering is not complete."""
    result = {int(number): word.casefold() == "good" for number, word in _LINE.findall(reply)}
    for first in (0, 1):
        if result.keys() == set(range(first, first + steps)):
            return tuple(result[first + k] for k in range(steps))
    return (None,) * steps
