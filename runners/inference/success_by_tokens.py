"""Success against tokens of one way to play, on the same tasks as every other.

Invariant: every number is one per task first, so that intervals resample tasks and differences are paired.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.rollout.search.settings import ScorerKind
from runners.statistics.intervals import Interval, bootstrap, bootstrap_gain


@dataclass(frozen=True)
class Point:
    """One scorer at one budget. A task that was never played to an end is NaN."""

    agent: str
    scorer: str
    budget: int
    success: tuple[float, ...]
    """Of each task."""
    tokens: tuple[float, ...]
    """Sampled for each task, in all episodes or in the whole search."""
    value_tokens: float = 0.0
    """Read for values, a task: what the critic costs beside."""


@dataclass(frozen=True)
class Row:
    """A point with its intervals, and how it differs from the baselines at the same budget."""

    agent: str
    scorer: str
    budget: int
    tasks: int
    success: Interval
    tokens: Interval
    value_tokens: float
    over: Mapping[str, Interval]
    """Success less that of a baseline, by its name."""


BASELINES = (ScorerKind.RANDOM, ScorerKind.LOGPROB)


def known(point: Point) -> list[float]:
    return [x for x in point.success if not math.isnan(x)]


def rows_of(points: Sequence[Point]) -> list[Row]:
    """Every point with what can be said of it. Points without a played task are left out."""
    rows = []
    for point in (p for p in points if known(p)):
        like = [p for p in points if (p.agent, p.budget) == (point.agent, point.budget) and p is not point]
        beside = [p for p in like if p.scorer in BASELINES]
        rows.append(
            Row(
                point.agent,
                point.scorer,
                point.budget,
                len(known(point)),
                bootstrap(known(point)),
                bootstrap([x for x in point.tokens if not math.isnan(x)]),
                point.value_tokens,
                {p.scorer: gain(p, point) for p in beside if known(p)},
            )
        )
    return rows


def gain(before: Point, after: Point) -> Interval:
    """The paired difference in success, over the tasks that both played."""
    pairs = [(a, b) for a, b in zip(before.success, after.success, strict=True) if not (math.isnan(a) or math.isnan(b))]
    return bootstrap_gain([a for a, _ in pairs], [b for _, b in pairs])
