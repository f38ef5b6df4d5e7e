"""The scores of an episode turn by turn, for a reader who may not see how it ended.

Invariant: only the measurement and the oracle read `success`.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from agent_envs.actions import ActionError, Grammar
from agent_envs.boxed import boxed
from agents.model.state_values import Critic
from agents.rollout.search.scorers import logprob_of
from agents.rollout.search.settings import ScorerKind, Scoring
from agents.tree.episode import Episode, Fault
from runners.evaluation.measure import PlayedTasks


@dataclass(frozen=True)
class Scores:
    """An episode of n turns."""

    task: int
    """Number of its task, in the order in which they were played."""
    success: float
    tokens: tuple[int, ...]
    """Sampled tokens of each turn."""
    logps: tuple[float, ...]
    """log pi of each action."""
    values: tuple[float, ...] | None
    """V of each of the n + 1 states; None without a critic."""
    oracle: tuple[float, ...] | None
    """The environment's chance of success in each state; None where it was not asked."""
    answer: object
    """What it answered at last; equal answers are the same."""
    luck: float
    """A number of its own seed."""


def lines_of(result: PlayedTasks, critic: Critic | None, grammar: Grammar | None) -> list[list[Scores]]:
    """The lines of each task; episodes that broke, or have no turn, are left out."""
    values = {} if critic is None else dict(zip(map(id, result.episodes), critic.values(result.episodes), strict=True))
    found: list[list[Scores]] = []
    for start in range(0, len(result.outcomes), result.samples):
        mine = result.outcomes[start : start + result.samples]
        found.append([_line(len(found), e, values.get(id(e)), grammar) for e in mine if _played(e)])
    return found


def _played(outcome: Episode | Fault) -> bool:
    return isinstance(outcome, Episode) and bool(outcome.turns)


def _line(task: int, episode: Episode | Fault, values: tuple[float, ...] | None, grammar: Grammar | None) -> Scores:
    assert isinstance(episode, Episode)
    known = [state.oracle for state in (episode.root, *(state for _, state in episode.turns))]
    return Scores(
        task,
        float(bool(episode.success)),
        tuple(len(action.tokens) for action, _ in episode.turns),
        tuple(sum(action.logp) for action, _ in episode.turns),
        values,
        None if any(x is None for x in known) else tuple(x for x in known if x is not None),
        answer_of(episode.texts[-1][0], grammar),
        Random(episode.job.seed("random")).random(),
    )


def answer_of(text: str, grammar: Grammar | None) -> object:
    """What an action says, without the thoughts before it."""
    with contextlib.suppress(ValueError):
        return boxed(text).casefold()
    with contextlib.suppress(ActionError):
        if grammar is not None:
            action = grammar.parse(text)
            return action.name, action.args.casefold()
    return text.strip()


def scores(lines: Sequence[Scores], scoring: Scoring) -> list[float]:
    """What the episodes of one task are ranked by, once all are finished."""
    kind = scoring.kind
    if kind == ScorerKind.MAJORITY:
        answers = [line.answer for line in lines]
        return [float(answers.count(answer)) for answer in answers]
    if kind == ScorerKind.ORACLE:
        return [line.success for line in lines]
    if kind == ScorerKind.RANDOM:
        return [line.luck for line in lines]
    place = -1 if kind in (ScorerKind.END_VALUE, ScorerKind.END_VALUE_LOGPROB) else -2
    return [_score(line, scoring, len(line.tokens) + 1 + place, len(line.tokens)) for line in lines]


def running(line: Scores, scoring: Scoring) -> list[float]:
    """The score of each state in which an action was taken, of what came before it."""
    if scoring.kind == ScorerKind.ORACLE:
        assert line.oracle is not None
        return list(line.oracle[:-1])
    if scoring.kind == ScorerKind.RANDOM:
        rng = Random(line.luck)
        return [rng.random() for _ in line.tokens]
    return [_score(line, scoring, k, k) for k in range(len(line.tokens))]


def _score(line: Scores, scoring: Scoring, state: int, turns: int) -> float:
    likely = logprob_of(line.logps[:turns], scoring.form)
    if not scoring.kind.asks_critic:
        return likely
    assert line.values is not None
    return line.values[state] + (scoring.weight * likely if scoring.kind.asks_policy else 0.0)
