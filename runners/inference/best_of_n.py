"""Best of n: of n episodes of a task a scorer chooses one, and its verdict counts.

Invariant: all scorers choose from the same episodes; those of a task are divided into as many groups of n as there are,
and a task's success is the mean over its groups.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agents.rollout.search.settings import ScorerKind, Scoring
from runners.inference.episode_scores import Scores, scores
from runners.inference.settings import Agent
from runners.inference.success_by_tokens import Point
from runners.statistics.intervals import mean

WEIGHTS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 100.0)
"""What the spread of the log-probabilities may count beside that of the values."""


def groups(lines: Sequence[Scores], n: int) -> list[Sequence[Scores]]:
    return [lines[i : i + n] for i in range(0, len(lines) - n + 1, n)]


def chosen(lines: Sequence[Scores], scoring: Scoring) -> Scores:
    """The episode with the highest score, of equal ones the first."""
    result = scores(lines, scoring)
    return lines[result.index(max(result))]


def point(tasks: Sequence[Sequence[Scores]], scoring: Scoring, n: int, value_tokens: float) -> Point:
    """What the scorer makes of n episodes per task."""
    success, tokens = [], []
    for lines in tasks:
        mine = groups(lines, n)
        success.append(mean([chosen(group, scoring).success for group in mine]))
        tokens.append(mean([float(sum(sum(line.tokens) for line in group)) for group in mine]))
    read = value_tokens * n if scoring.kind.asks_critic else 0.0
    return Point(Agent.BEST_OF_N, scoring.kind, n, tuple(success), tuple(tokens), read)


def candidates(tasks: Sequence[Sequence[Scores]], scoring: Scoring) -> list[Scoring]:
    """Weights of the log-probability to try: multiples of the ratio of the spreads of the two scores."""
    both = (ScorerKind(scoring.kind.removesuffix("+logprob")), ScorerKind.LOGPROB)
    columns = [[x for lines in tasks for x in scores(lines, replace(scoring, kind=kind))] for kind in both]
    spread = [float(np.std(column)) if column else 0.0 for column in columns]
    unit = spread[0] / spread[1] if min(spread) > 0 else 1.0
    return [replace(scoring, weight=unit * factor) for factor in WEIGHTS]


def choose_weight(tasks: Sequence[Sequence[Scores]], scoring: Scoring, n: int) -> Scoring:
    """The weight under which a mixed scorer does best on validation tasks; of equal ones the first."""

    def success(candidate: Scoring) -> float:
        return float(np.nanmean([*point(tasks, candidate, n, 0.0).success, 0.0]))

    return max(candidates(tasks, scoring), key=success)
