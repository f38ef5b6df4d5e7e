"""One task's budget of episodes: which of them fork, and which begin later.

Invariant: what a `TaskBudget` decides depends on its own task only, and on nothing but its arguments: no clock, no
engine, no environment, no random numbers of its own. It never begins more episodes than its budget, and, when it is
asked until no episode is left in play, exactly as many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from agents.rollout.forking.settings import ForkPlan, ForkPoint, TopUp


@dataclass(frozen=True)
class Branch:
    """An episode that goes on, at the end of a round."""

    entropy: tuple[float, ...]
    first_entropy: tuple[float, ...]
    calls: int
    rng: Random
    """Its own: it derives from the episode's job and turn."""


class TaskBudget:
    """One task's budget of episodes, and who of them forks."""

    def __init__(self, plan: ForkPlan) -> None:
        if plan.sampling.initial is None:
            raise ValueError("a plan needs the number of episodes that begin at once: Sampling.initial")
        self._rule, self._sampling = plan.rule, plan.sampling
        self.made = plan.sampling.initial
        """Episodes begun so far; the first ones are there from the start."""

    @property
    def left(self) -> int:
        """Episodes that may still begin."""
        return self._sampling.group - self.made

    def decide(self, live: Sequence[Branch]) -> tuple[list[int], int]:
        """(forks of each of ``live``, new episodes from the root).

        To be asked whenever every episode of the task that is in play has ended a turn; ``live`` are those that go on,
        in the order in which they began.
        """
        forks = []
        for branch in live:
            point = ForkPoint(branch.entropy, branch.first_entropy, len(live), self.made, self.left, branch.calls)
            wanted = self._rule(point, branch.rng) if self.left else 0
            forks.append(max(0, min(wanted, self.left)))
            self.made += forks[-1]
        fresh = 0
        if not live:
            fresh = self.left if self._sampling.top_up == TopUp.AT_ONCE else min(1, self.left)
            self.made += fresh
        return forks, fresh
