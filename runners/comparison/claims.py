"""Claims and what becomes of them: the interval decides, not the mean.

Invariant: a claim holds when its whole interval lies on its side of the threshold, does not hold when none of it does,
and is undecided otherwise, and wherever there are too few seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np

from runners.command_line.errors import UserError
from runners.comparison.measures import Figures, grid, interval
from runners.statistics.intervals import Interval

LEAST_SEEDS = 5
"""With fewer, an interval over seeds does not hold what it promises."""


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"


class ClaimKind(StrEnum):
    """What is compared with the threshold: a - b, a / b, or the share (a - b) / (of - b) of a gap that a closes."""

    DIFFERENCE = "difference"
    RATIO = "ratio"
    SHARE = "share"


@dataclass(frozen=True)
class Claim:
    """One claim: ``kind`` of ``entrant`` against ``against`` in ``measure`` is at least, or at most, a number."""

    measure: str
    entrant: str
    against: str
    kind: ClaimKind = ClaimKind.DIFFERENCE
    of: str = ""
    """Who is at the other end of the gap; for a share only."""
    at_least: float | None = None
    at_most: float | None = None
    text: str = ""
    """The claim in words."""
    source: str = ""

    @property
    def entrants(self) -> tuple[str, ...]:
        """Whom it is about."""
        return (self.entrant, self.against, *([self.of] if self.kind == ClaimKind.SHARE else []))

    def __str__(self) -> str:
        a, b = self.entrant, self.against
        what = {
            ClaimKind.DIFFERENCE: f"{a} − {b}",
            ClaimKind.RATIO: f"{a} / {b}",
            ClaimKind.SHARE: f"({a} − {b}) / ({self.of} − {b})",
        }[self.kind]
        bound = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return f"{self.measure}: {what} {bound}"


@dataclass(frozen=True)
class Judged:
    claim: Claim
    value: Interval | None
    """None where a run cannot tell the measure."""
    verdict: Verdict


def read_claims(values: Any, entrants: Sequence[str], measures: Sequence[str]) -> list[Claim]:
    """The section ``claims`` of a settings file. Raises UserError."""
    if not isinstance(values or [], list):
        raise UserError("claims: must be a list")
    return [_claim(i, value, entrants, measures) for i, value in enumerate(values or [], 1)]


def _claim(number: int, value: Any, entrants: Sequence[str], measures: Sequence[str]) -> Claim:
    names = [field.name for field in fields(Claim)]
    where = f"claim {number}"
    if not isinstance(value, dict) or (set(value) - set(names)):
        raise UserError(f"{where}: must hold some of {', '.join(names)}")
    try:
        claim = Claim(**{**value, "kind": ClaimKind(value.get("kind", ClaimKind.DIFFERENCE))})
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {error}") from None
    if claim.measure not in measures:
        raise UserError(f"{where}: there is no measure {claim.measure!r}; there are {', '.join(measures)}")
    for name in claim.entrants:
        if name not in entrants:
            raise UserError(f"{where}: there is no entrant {name!r}; there are {', '.join(entrants)}")
    if (claim.at_least is None) == (claim.at_most is None):
        raise UserError(f"{where}: give either at_least or at_most")
    if not all(isinstance(x, (int, float)) for x in (claim.at_least, claim.at_most) if x is not None):
        raise UserError(f"{where}: its threshold must be a number")
    return claim


def judge(claim: Claim, figures: Mapping[str, Mapping[int, Figures]]) -> Judged:
    """Decides one claim over the seeds that all its entrants have."""
    whose = [figures[name] for name in claim.entrants]
    seeds = sorted(set.intersection(*map(set, whose)))
    value = interval(*(grid(mine, claim.measure, seeds) for mine in whose), combine=_COMBINE[claim.kind])
    return Judged(claim, value, verdict(value, claim) if len(seeds) >= LEAST_SEEDS else Verdict.UNDECIDED)


def verdict(value: Interval | None, claim: Claim) -> Verdict:
    if value is None:
        return Verdict.UNDECIDED
    if claim.at_least is not None:
        inside, outside = value.low >= claim.at_least, value.high < claim.at_least
    else:
        assert claim.at_most is not None
        inside, outside = value.high <= claim.at_most, value.low > claim.at_most
    return Verdict.HOLDS if inside else Verdict.FAILS if outside else Verdict.UNDECIDED


def _divided(above: Any, below: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(above, below)


_COMBINE = {
    ClaimKind.DIFFERENCE: lambda a, b: a - b,
    ClaimKind.RATIO: _divided,
    ClaimKind.SHARE: lambda a, b, c: _divided(a - b, c - b),
}
