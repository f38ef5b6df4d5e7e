"""Scorers: the values by which a search compares the states of its episodes.

Invariant: a score depends on the episode alone, not on which others are scored beside it (up to the rounding of a
batched matrix product). Higher is better; scores of different scorers have different units.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol

from agents.model.state_values import Critic
from agents.rollout.search.settings import SEARCHERS, LogprobForm, ScorerKind, Scoring
from agents.tree.episode import Episode


def logprob_of(action_logps: Sequence[float], form: LogprobForm) -> float:
    """The mean (or sum) over the actions of log pi(action); 0 before the first one."""
    total = sum(action_logps)
    return total / max(1, len(action_logps)) if form == LogprobForm.MEAN else total


class Scorer(Protocol):
    """Scores where episodes stand."""

    additive: bool
    """Whether a score is what is still to be paid, so that what was paid already is added to it."""

    def scores(self, episodes: Sequence[Episode]) -> list[float]: ...


def scorer_of(scoring: Scoring, critic: Critic | None) -> Scorer:
    """Raises ValueError for one that cannot lead a search, or that needs a critic where there is none."""
    if scoring.kind not in SEARCHERS:
        raise ValueError(f"{scoring.kind} ranks finished episodes only; a search can use {', '.join(SEARCHERS)}")
    if scoring.kind.asks_critic and critic is None:
        raise ValueError(f"the scorer {scoring.kind} needs a critic, and the model has none")
    if scoring.kind == ScorerKind.RANDOM:
        return ByChance()
    if scoring.kind == ScorerKind.ORACLE:
        return ByOracle()
    if scoring.kind == ScorerKind.LOGPROB:
        return ByLogprob(scoring.form)
    assert critic is not None
    return ByValue(critic, scoring if scoring.kind.asks_policy else None)


class ByValue:
    """The critic's V, and, where asked for, the log-probability of the actions that led there."""

    additive = True

    def __init__(self, critic: Critic, beside: Scoring | None = None) -> None:
        self.critic, self.beside = critic, beside

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        values = self.critic.last(episodes)
        if self.beside is None:
            return values
        likely = ByLogprob(self.beside.form).scores(episodes)
        return [v + self.beside.weight * x for v, x in zip(values, likely, strict=True)]


class ByLogprob:
    """How likely the policy was to act so."""

    additive = False

    def __init__(self, form: LogprobForm) -> None:
        self.form = form

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        return [logprob_of([sum(action.logp) for action, _ in e.turns], self.form) for e in episodes]


class ByChance:
    """A number of the episode's own seed and tokens: the baseline of every scorer."""

    additive = False

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        return [Random(e.job.seed("random", *(action.tokens for action, _ in e.turns))).random() for e in episodes]


class ByOracle:
    """The environment's own chance of success."""

    additive = False

    def scores(self, episodes: Sequence[Episode]) -> list[float]:
        return [0.0 if e.end.oracle is None else e.end.oracle for e in episodes]
