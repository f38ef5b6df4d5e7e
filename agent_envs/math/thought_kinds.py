"""The six kinds of thought factors, recognised by their words.

Invariant: the kind is read off the text alone, by the marker phrase that stands first in it, in time linear in a
bounded beginning of the text. What has none of them is work on a step, or the answer.

The six are those of the slides on thought factors: 提出猜测, 否定猜测, 提出候选方案, 澄清目标, 自我发现并修正错误,
拆解子任务.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

_LOOK_AT = 160
"""A factor is short: what comes after this many characters says nothing about its kind."""


class Factor(StrEnum):
    """What a thought factor does."""

    GUESS = "guess"
    """Propose a guess."""
    REJECT = "reject"
    """Reject a guess."""
    PLAN = "plan"
    """Propose a candidate way."""
    GOAL = "goal"
    """Clarify what is asked for."""
    MEND = "mend"
    """Find one's own mistake and fix it."""
    SPLIT = "split"
    """Split into sub-tasks."""


_MARKERS: dict[Factor, str] = {
    Factor.GUESS: r"maybe\b|perhaps\b|(?:my|a|first) guess\b|guess:|i guess|也许|猜测|我猜|可能是",
    Factor.REJECT: r"no,|not right|cannot be\b|can't be\b|doesn't (?:work|fit)|that fails|不对|不可能|行不通|否定",
    Factor.PLAN: r"one way\b|another way\b|alternatively\b|plan:|the approach\b|一个办法|另一个办法|换一种|方案|或者",
    Factor.GOAL: r"goal:|the goal\b|we (?:need|want|have) to (?:find|know)|asks for\b|asked for\b"
    r"|目标|题目要求|要求的是",
    Factor.MEND: r"wait\b|i made an? (?:mistake|error)|correction:|let me (?:re-?check|correct|fix)|等等|修正|算错了",
    Factor.SPLIT: r"sub-?tasks?\b|parts:|break (?:it|this|that) down|first\b.{0,80}\bthen\b|拆解|子任务|先.{0,80}再",
}
_ANY = re.compile("|".join(f"(?P<{kind}>{markers})" for kind, markers in _MARKERS.items()), re.IGNORECASE)


def kind_of(text: str) -> Factor | None:
    """The kind of a thought factor; None for one that just works on, or answers."""
    return _kind(text.strip()[:_LOOK_AT])


@lru_cache(maxsize=4096)
def _kind(beginning: str) -> Factor | None:
    result = _ANY.search(beginning)
    return Factor(result.lastgroup) if result and result.lastgroup else None


def counted(kinds: Iterable[Factor | None]) -> dict[str, float]:
    """How many factors there are, and how many of each kind: `factors`, `factors_guess`, …"""
    seen = list(kinds)
    return {"factors": float(len(seen)), **{f"factors_{kind}": float(seen.count(kind)) for kind in Factor}}
