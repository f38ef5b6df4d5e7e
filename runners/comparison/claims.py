"""Claims and what becomes of them: the interval decides, not the mean.

Invariant: a claim holds when its whole interval lies on its side of the threshold, does not hold when none of it does,
and is undecided otherwise, and wherever there are too few seeds. Beside that stands whether it still holds as one of
several claims: one that was named as the primary claim beforehand is tested alone, all others by Holm's method.
A difference, a ratio and a share are tested alike: by what is left of a - b, a - r b or (a - b) - r (of - b).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np

from runners.command_line.errors import UserError
from runners.comparison.measures import Figures, grid, interval
from runners.statistics.contrasts import chance, fieller, holm
from runners.statistics.intervals import Interval

LEAST_SEEDS = 5
"""With fewer, an interval over seeds does not hold what it promises."""
LEVEL = 0.025
"""Of a one-sided test: what a 95 % interval leaves on each side."""


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
    primary: bool = False
    """The one claim of a study that was chosen before its runs."""

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
    chance: float | None = None
    """One-sided p of a t-test over seeds, counted as one of all claims but the primary one; None with too few seeds."""
    fieller: Interval | None = None
    """Fieller's interval of a ratio or a share; None for a difference, and where it has no bounds."""

    @property
    def corrected(self) -> Verdict:
        """The verdict beside the other claims."""
        survives = self.chance is not None and self.chance <= LEVEL
        return Verdict.UNDECIDED if self.verdict is Verdict.HOLDS and not survives else self.verdict

    def plain(self) -> dict[str, Any]:
        """What became of the claim, for JSON."""
        return {
            "value": self.value,
            "verdict": self.verdict.value,
            "chance": self.chance,
            "corrected": self.corrected.value,
            "fieller": self.fieller,
        }


def read_claims(values: Any, entrants: Sequence[str], measures: Sequence[str]) -> list[Claim]:
    """The section ``claims`` of a settings file. Raises UserError."""
    if not isinstance(values or [], list):
        raise UserError("claims: must be a list")
    claims = [_claim(i, value, entrants, measures) for i, value in enumerate(values or [], 1)]
    if sum(claim.primary for claim in claims) > 1:
        raise UserError("claims: only one of them can be the primary one")
    return claims


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
    if not (isinstance(claim.text, str) and isinstance(claim.source, str)):
        raise UserError(f"{where}: text and source must be texts: write what is no word in quotes")
    if not isinstance(claim.primary, bool):
        raise UserError(f"{where}: primary must be true or false")
    return claim


def judge_all(claims: Sequence[Claim], figures: Mapping[str, Mapping[int, Figures]]) -> list[Judged]:
    """Decides the claims of a study, each over the seeds that all its entrants have."""
    judged = [judge(claim, figures) for claim in claims]
    beside = [i for i, one in enumerate(judged) if one.chance is not None and not one.claim.primary]
    for i, adjusted in zip(beside, holm([judged[i].chance or 0.0 for i in beside]), strict=True):
        judged[i] = replace(judged[i], chance=adjusted)
    return judged


def judge(claim: Claim, figures: Mapping[str, Mapping[int, Figures]]) -> Judged:
    """Decides one claim, as if it were the only one."""
    whose = [figures[name] for name in claim.entrants]
    seeds = sorted(set.intersection(*map(set, whose)))
    grids = [grid(mine, claim.measure, seeds) for mine in whose]
    value = interval(*grids, combine=_COMBINE[claim.kind])
    if value is None or len(seeds) < LEAST_SEEDS:
        return Judged(claim, value, Verdict.UNDECIDED)
    a, b, *of = (np.nanmean(one, axis=1) for one in grids)
    above, below = (a - b, of[0] - b) if of else (a, b)
    ratio = claim.kind != ClaimKind.DIFFERENCE
    bound = claim.at_least if claim.at_least is not None else claim.at_most
    assert bound is not None
    left = (above - bound * below) * np.sign(below.mean()) if ratio else a - b - bound
    return Judged(
        claim,
        value,
        verdict(value, claim),
        chance(left if claim.at_least is not None else -left),
        fieller(above, below) if ratio else None,
    )


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
