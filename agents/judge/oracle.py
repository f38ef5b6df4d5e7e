"""The environment's own knowledge as a judge, with as much noise as one asks for.

Invariant: a label depends on the states before and after the action and on (run seed, job, turn), nothing else; a label
that is wrong at some noise is wrong at every higher one.
"""

from collections.abc import Sequence
from itertools import pairwise

from agents.judge.base import Judge, Labels, Verdicts
from agents.tree.episode import Episode
from agents.tree.tree import ROUNDING


class OracleJudge(Judge):
    """Labels a step by the change of the environment's own chance of success.

    GOOD: it rose, or did not change; BAD: it fell; None: the environment does not say.

    ``noise`` is the chance of each label to be turned round.
    """

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def label(self, episodes: Sequence[Episode], scores: Sequence[float]) -> Verdicts:
        return Verdicts([self.labels(episode) for episode in episodes])

    def labels(self, episode: Episode) -> Labels:
        values = [episode.root.oracle, *(state.oracle for _, state in episode.turns)]
        return tuple(
            None if before is None or after is None else (after - before > -ROUNDING) != self.wrong(episode, turn)
            for turn, (before, after) in enumerate(pairwise(values))
        )

    def wrong(self, episode: Episode, turn: int) -> bool:
        return episode.job.seed("judge", turn) / 2**63 < self.noise
