"""Settings of agents that use scores, and the scorers that fit each agent."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_envs.ranges import check_ranges
from agents.rollout.search.settings import SEARCHERS, LogprobForm, ScorerKind, Scoring, ToTSettings


class Agent(StrEnum):
    """Who is measured."""

    REACT = "react"
    """One action for every state."""
    BEST_OF_N = "best-of-n"
    """n episodes of a task, of which a scorer chooses one without having seen the verdict."""
    TOT = "tot"
    """A search that a scorer leads."""
    EARLY_STOP = "early-stop"
    """One episode, given up as soon as its score falls below a threshold that was chosen on validation tasks."""


K = ScorerKind
FITTING = {
    Agent.REACT: (),
    Agent.BEST_OF_N: tuple(K),
    Agent.TOT: SEARCHERS,
    Agent.EARLY_STOP: (K.VALUE, K.LOGPROB, K.VALUE_LOGPROB, K.RANDOM, K.ORACLE),
}
USUAL = {
    Agent.REACT: (),
    Agent.BEST_OF_N: (K.RANDOM, K.MAJORITY, K.LOGPROB, K.VALUE, K.VALUE_LOGPROB, K.ORACLE),
    Agent.TOT: (K.RANDOM, K.LOGPROB, K.VALUE, K.VALUE_LOGPROB),
    Agent.EARLY_STOP: (K.VALUE,),
}


@dataclass(frozen=True)
class BestOfN:
    """How many episodes are chosen from."""

    n: tuple[int, ...] = (2, 4, 8)
    """Episodes per task, one budget each. The largest number is played once for all scorers; a smaller n is measured on
    all groups of n within it."""

    def __post_init__(self) -> None:
        if not self.n or not 2 <= min(self.n) <= max(self.n) <= 10_000 or len(set(self.n)) < len(self.n):
            raise ValueError(f"n must be different numbers from 2 to 10000, not {self.n}")


@dataclass(frozen=True)
class Sweep:
    """Budgets of a search."""

    branch: tuple[int, ...] = ()
    """Values of --tot.branch, one budget each; by default only that."""

    def __post_init__(self) -> None:
        if self.branch and (min(self.branch) < 2 or len(set(self.branch)) < len(self.branch)):
            raise ValueError(f"branch must be different numbers from 2 on, not {self.branch}")


@dataclass(frozen=True)
class EarlyStop:
    """When an episode is given up."""

    max_loss: float = 0.01
    """The threshold is the highest one that loses at most this share of the validation episodes to success, at the
    upper end of the 95 % interval over tasks."""
    first: int = 1
    """Turns that are always played."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_loss < 1 or self.first < 0:
            raise ValueError("max_loss must lie in 0..1, below 1, and first must not be negative")


@dataclass(frozen=True)
class Likelihood:
    """How log-probabilities are used as scores."""

    form: LogprobForm = LogprobForm.MEAN
    """Mean or sum over the actions of log pi(action)."""
    weight: float = 0.0
    """Weight of a unit of log-probability next to the value; 0: chosen on validation tasks."""

    def __post_init__(self) -> None:
        check_ranges(self, weight=0)

    def scoring(self, kind: ScorerKind, discount: float = 1.0) -> Scoring:
        """A scorer as it is told; where the weight is still to be chosen, with a weight of 1."""
        return Scoring(kind, self.form, self.weight or 1.0, discount)


@dataclass(frozen=True)
class Validation:
    """What thresholds and weights are chosen on."""

    tasks: int = 200
    """Validation tasks; they are not measured."""

    def __post_init__(self) -> None:
        check_ranges(self, tasks=1)


def check_scorers(agent: Agent, requested: Sequence[ScorerKind]) -> None:
    """Raises ValueError for scorers that would have no effect."""
    if requested and agent == Agent.REACT:
        raise ValueError("scorer only works with agent best-of-n, tot or early-stop: react does not choose")
    for kind in requested:
        if kind not in FITTING[agent]:
            raise ValueError(f"{agent} cannot use the scorer {kind}; there are {', '.join(FITTING[agent])}")
    if len(set(requested)) < len(requested):
        raise ValueError("a scorer is named twice")


def asks_oracle(agent: Agent, kinds: Sequence[ScorerKind]) -> bool:
    """Whether a scorer goes by what the environment knows of states on the way."""
    return agent in (Agent.TOT, Agent.EARLY_STOP) and ScorerKind.ORACLE in kinds


def scorers_of(agent: Agent, requested: Sequence[ScorerKind]) -> tuple[ScorerKind, ...]:
    """The scorers that are compared."""
    return tuple(requested) or USUAL[agent]


def parts_of(agent: Agent, requested: Sequence[ScorerKind]) -> dict[str, type]:
    """The settings that act with an agent and its scorers."""
    kinds = scorers_of(agent, requested)
    parts: dict[str, type] = {}
    if agent == Agent.BEST_OF_N:
        parts["best_of_n"] = BestOfN
    if agent == Agent.TOT:
        parts |= {"tot": ToTSettings, "sweep": Sweep}
    if agent == Agent.EARLY_STOP:
        parts["early_stop"] = EarlyStop
    if any(kind.asks_policy for kind in kinds):
        parts["logprob"] = Likelihood
    if agent == Agent.EARLY_STOP or any(kind.mixed for kind in kinds):
        parts["validation"] = Validation
    return parts
