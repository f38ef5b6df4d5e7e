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

    @property
    def played(self) -> int:
        """Tasks that were played to an end."""
        return sum(not math.isnan(x) for x in self.success)


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


def rows_of(points: Sequence[Point]) -> list[Row]:
    """Every point with what can be said of it. Points without a played task are left out."""
    rows = []
    for point in (p for p in points if p.played):
        like = [p for p in points if (p.agent, p.budget) == (point.agent, point.budget) and p is not point]
        rows.append(
            Row(
                point.agent,
                point.scorer,
                point.budget,
                point.played,
                bootstrap(point.success),
                bootstrap(point.tokens),
                point.value_tokens,
                {
                    p.scorer: bootstrap_gain(p.success, point.success)
                    for p in like
                    if p.scorer in BASELINES and p.played
                },
            )
        )
    return rows
