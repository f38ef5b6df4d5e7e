"""Scorers: the values by which a search compares the states of its episodes.

Invariant: a score depends on the episode alone, not on which others are scored beside it (up to the rounding of a
batched matrix product). Higher is better; scores of different scorers have different units.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from agents.model.state_values import Critic
from agents.rollout.search.settings import SEARCHERS, LogprobForm, ScorerKind, Scoring
from agents.tree.episode import Episode


def logprob_of(action_logps: Sequence[float], form: LogprobForm) -> float:
    """The mean (or sum) over the actions of log pi(action); 0 before the first one."""
    total = sum(action_logps)
    return total / max(1, len(action_logps)) if form == LogprobForm.MEAN else total


@dataclass(frozen=True)
class Scorer:
    """Scores where episodes stand."""

    scores: Callable[[Sequence[Episode]], list[float]]
    additive: bool = False
    """Whether a score is what is still to be paid, so that what was paid already is added to it."""


def scorer_of(scoring: Scoring, critic: Critic | None) -> Scorer:
    """Raises ValueError for one that cannot lead a search, or that needs a critic where there is none."""
    if scoring.kind not in SEARCHERS:
        raise ValueError(f"{scoring.kind} ranks finished episodes only; a search can use {', '.join(SEARCHERS)}")
    if scoring.kind.asks_critic and critic is None:
        raise ValueError(f"the scorer {scoring.kind} needs a critic, and the model has none")
    if scoring.kind == ScorerKind.RANDOM:
        return Scorer(by_chance)
    if scoring.kind == ScorerKind.ORACLE:
        return Scorer(by_oracle)
    if scoring.kind == ScorerKind.LOGPROB:
        return Scorer(partial(by_logprob, scoring.form))
    assert critic is not None
    return Scorer(partial(by_value, critic, scoring), additive=True)


def by_value(critic: Critic, scoring: Scoring, episodes: Sequence[Episode]) -> list[float]:
    """The critic's V, and, where asked for, the log-probability of the actions that led there."""
    values = critic.last(episodes)
    if not scoring.kind.asks_policy:
        return values
    likely = by_logprob(scoring.form, episodes)
    return [v + scoring.weight * x for v, x in zip(values, likely, strict=True)]


def by_logprob(form: LogprobForm, episodes: Sequence[Episode]) -> list[float]:
    """How likely the policy was to act so."""
    return [logprob_of([sum(action.logp) for action, _ in e.turns], form) for e in episodes]


def by_chance(episodes: Sequence[Episode]) -> list[float]:
    """A number of the episode's own seed and tokens: the baseline of every scorer."""
    return [Random(e.job.seed("random", *(action.tokens for action, _ in e.turns))).random() for e in episodes]


def by_oracle(episodes: Sequence[Episode]) -> list[float]:
    """The environment's own chance of success."""
    return [0.0 if e.end.oracle is None else e.end.oracle for e in episodes]
