"""Settings of forking episodes, and the rule by which an algorithm forks them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from agent_envs.ranges import check_ranges


class Measure(StrEnum):
    """Whose tokens tell how uncertain an agent is when it has read an observation."""

    NEXT_TURN = "next_turn"
    """The first tokens of the turn that follows: they are sampled, measured, and stay with it [ARPO, paper]."""
    CALLING_TURN = "calling_turn"
    """Those of the turn that asked for the observation [ARPO, the authors' code]."""


class TopUp(StrEnum):
    """How episodes that no fork has made are begun, once none of the task is in play any more."""

    AT_ONCE = "at_once"
    """All together [paper]."""
    ONE_BY_ONE = "one_by_one"
    """The next one when the one before has ended; it may fork meanwhile [code]."""


class FirstEntropy(StrEnum):
    """What the uncertainty of a fork is compared with."""

    PATH = "path"
    """The first turn of the task, as for all who share it."""
    OWN = "own"
    """The first turn that the fork took itself [code]."""


@dataclass(frozen=True)
class Sampling:
    """What the rollout obeys."""

    group: int = 1
    """Episodes played per task; they share one tree."""
    initial: int | None = None
    """How many of them begin at the root at once; forks and late ones are the rest. None: all, and no forks."""
    tokens: int = 20
    """How many of a turn's first tokens are measured: the look-ahead."""
    measure: Measure = Measure.NEXT_TURN
    top_up: TopUp = TopUp.AT_ONCE
    first: FirstEntropy = FirstEntropy.PATH
    resample: int = 0
    """Times that other tasks are drawn in place of those whose episodes all have the same return (DAPO)."""

    def __post_init__(self) -> None:
        check_ranges(self, group=1, tokens=1, resample=0)
        if self.initial is not None and not 1 <= self.initial <= self.group:
            raise ValueError(f"initial must lie in 1..{self.group}, the episodes of a task, not {self.initial}")


@dataclass(frozen=True)
class ForkPoint:
    """Where an episode stands when the rollout asks whether it forks: it has read an observation, and goes on."""

    entropy: tuple[float, ...]
    """Entropy of each measured token as a share of the largest possible, log V."""
    first_entropy: tuple[float, ...]
    """The same for the first turn."""
    live: int
    """Episodes of this task that have reached this round's end and go on."""
    made: int
    """Episodes of this task begun so far."""
    left: int
    """Episodes that the task's budget still allows."""
    calls: int
    """Turns taken on this path."""


ForkRule = Callable[[ForkPoint, Random], int]
"""How many forks an episode gets at a point."""


@dataclass(frozen=True)
class ForkPlan:
    """How the tasks of a rollout fork. It is pickled: the rule is a function of a module, or a method of settings."""

    sampling: Sampling
    rule: ForkRule
