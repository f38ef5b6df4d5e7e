"""Early stop: an episode is given up as soon as its score falls below a threshold.

Invariant: the threshold, and which of two rules it belongs to, are chosen on validation episodes alone. Stopping
changes nothing of what was sampled before, so what it would have saved is read off whole episodes, exactly.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from agents.rollout.search.settings import Scoring
from runners.inference.episode_scores import Scores, running
from runners.statistics.accuracy import Vector
from runners.statistics.intervals import Interval, bootstrap, over_tasks, task_draws


class Rule(StrEnum):
    """What is compared with the threshold."""

    LEVEL = "level"
    """The score itself."""
    TURN = "turn"
    """Its rank among those of successful validation episodes at the same turn."""


@dataclass(frozen=True)
class Stop:
    """When an episode is given up."""

    scoring: Scoring
    rule: Rule
    threshold: float
    first: int
    of_turn: tuple[tuple[float, ...], ...] = ()
    """The successful validation episodes' scores at each turn, ascending."""

    def heights(self, line: Scores) -> list[float]:
        """What is compared with the threshold in each state in which an action was taken."""
        result = running(line, self.scoring)
        if self.rule == Rule.LEVEL:
            return result
        return [self._rank(k, score) for k, score in enumerate(result)]

    def _rank(self, turn: int, score: float) -> float:
        """Share of the turn's scores below this one, equal ones counting half; below all of them how far, negative."""
        if turn >= len(self.of_turn):
            return 1.0
        among = self.of_turn[turn]
        if score < among[0]:
            return (score - among[0]) / (among[-1] - among[0] or 1.0)
        return (bisect_left(among, score) + bisect_right(among, score)) / (2 * len(among))

    def lowest(self, line: Scores) -> float:
        return min(self.heights(line)[self.first :], default=np.inf)

    def turns(self, line: Scores) -> int:
        """How many turns are taken before it is given up."""
        for k, height in enumerate(self.heights(line)):
            if k >= self.first and height < self.threshold:
                return k
        return len(line.tokens)


def choose(lines: Sequence[Scores], candidates: Sequence[Scoring], first: int, max_loss: float) -> Stop:
    """The rule, the weight and the threshold that save most and lose at most ``max_loss`` of the episodes.

    At most means that the upper end of the loss's interval does not exceed it: on other tasks it is to hold, too.
    """
    stops = [stop for scoring in candidates for stop in highest(lines, scoring, first, max_loss)]
    return max(stops, key=lambda stop: saved(lines, stop))


def highest(lines: Sequence[Scores], scoring: Scoring, first: int, max_loss: float) -> list[Stop]:
    """Of each rule the highest threshold that loses at most ``max_loss`` of the episodes.

    The ranks of the rule by turn are taken among the episodes of every other task, and the threshold from the rest: an
    episode is never below all those that it is one of.
    """
    among, rest = [x for x in lines if x.task % 2 == 0], [x for x in lines if x.task % 2]
    level = at_most(lines, Stop(scoring, Rule.LEVEL, -np.inf, first), max_loss)
    turn = Stop(scoring, Rule.TURN, -np.inf, first, ladder(among, scoring))
    # Without a success in the rest nothing tells what a threshold would lose.
    return [level, at_most(rest, turn, max_loss) if any(line.success for line in rest) else turn]


def ladder(lines: Sequence[Scores], scoring: Scoring) -> tuple[tuple[float, ...], ...]:
    """The scores of the successful ``lines`` at each turn, ascending."""
    scores = [running(line, scoring) for line in lines if line.success]
    longest = max(map(len, scores), default=0)
    return tuple(tuple(sorted(s[k] for s in scores if k < len(s))) for k in range(longest))


def at_most(lines: Sequence[Scores], stop: Stop, max_loss: float) -> Stop:
    """The same rule with the highest threshold whose loss, at the upper end over tasks, is at most ``max_loss``."""
    lows = sorted((stop.lowest(line), line.task) for line in lines if line.success)
    episodes = Counter(line.task for line in lines)

    def upper(count: int) -> float:
        lost = Counter(task for _, task in lows[:count])
        return bootstrap([lost[task] / episodes[task] for task in sorted(episodes)]).high

    allowed = bisect_right(range(1, min(int(max_loss * len(lines)), len(lows)) + 1), max_loss, key=upper)
    # The next success that would be lost sets the threshold: what lies below it is given up.
    return replace(stop, threshold=lows[allowed][0] if allowed < len(lows) else np.inf)


def saved(lines: Sequence[Scores], stop: Stop) -> float:
    """Share of the sampled tokens of failing episodes that are not sampled any more."""
    lost = [line for line in lines if not line.success]
    whole = sum(sum(line.tokens) for line in lost)
    return sum(sum(line.tokens[stop.turns(line) :]) for line in lost) / whole if whole else 0.0


def figures(lines: Sequence[Scores], stop: Stop, draws: int = 1000) -> dict[str, Interval]:
    """What the rule saves and loses, each with its 95 % percentile interval over resampled tasks.

    ``failing_saved``: share of the failing episodes' tokens; ``tokens_saved``: of all episodes' tokens, those of lost
    successes included; ``success_lost``: share of all episodes; ``failing_stopped``: share of the failing episodes.
    """
    if not lines:
        return {}
    task_E = np.asarray([line.task for line in lines])
    whole_E = np.asarray([float(sum(line.tokens)) for line in lines])
    kept_E = np.asarray([float(sum(line.tokens[: stop.turns(line)])) for line in lines])
    won_E = np.asarray([line.success > 0 for line in lines])
    stopped_E = np.asarray([stop.turns(line) < len(line.tokens) for line in lines])
    ones_E = np.ones(len(lines))
    ratios: dict[str, tuple[Vector, Vector]] = {
        "failing_saved": ((whole_E - kept_E) * ~won_E, whole_E * ~won_E),
        "tokens_saved": (whole_E - kept_E, whole_E),
        "success_lost": (1.0 * (stopped_E & won_E), ones_E),
        "failing_stopped": (1.0 * (stopped_E & ~won_E), 1.0 * ~won_E),
    }
    drawn = task_draws(int(task_E.max()) + 1, draws, np.random.default_rng(0))

    def interval(up_E: Vector, down_E: Vector) -> Interval:
        found = over_tasks(lambda w: float((w * up_E).sum() / max((w * down_E).sum(), 1e-12)), task_E, drawn)
        assert found is not None
        return found

    return {name: interval(up_E, down_E) for name, (up_E, down_E) in ratios.items()}
