"""Measures agents that use scores: every scorer on the same tasks, with the same policy, at the same budgets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console

from agent_envs.core import Task, TextEnv
from agents.engine import SamplingSettings
from agents.model.state_values import Critic
from agents.rollout.search.settings import ScorerKind, Scoring, SearchPlan, ToTSettings
from agents.tree.episode import Searched
from algorithms.base import ValueMeaning
from runners.command_line.errors import UserError
from runners.evaluation.measure import PlayedTasks, evaluate_tasks, has_oracle, pick_tasks
from runners.evaluation.policies import Policies
from runners.inference import best_of_n, early_stop
from runners.inference.episode_scores import Scores, Weights, lines_of
from runners.inference.settings import Agent, BestOfN, EarlyStop, Likelihood, Sweep, asks_oracle
from runners.inference.success_by_tokens import Point
from runners.statistics.intervals import mean
from runners.training.searching import check_slots
from runners.workers.controller import Controller


@dataclass(frozen=True)
class Study:
    """What is measured, with which scorers."""

    agent: Agent
    kinds: tuple[ScorerKind, ...]
    parts: Mapping[str, Any]
    sampling: SamplingSettings
    samples: int
    seed: int
    slots: int


@dataclass(frozen=True)
class Player:
    """The policy that was loaded, and its critic."""

    controller: Controller
    env: TextEnv
    console: Console
    critic: Critic | None = None
    discount: float = 1.0
    verifies: bool = False
    """Whether V after an answer learned the outcome."""

    def play(self, tasks: Sequence[Task], study: Study, samples: int, search: SearchPlan | None = None) -> PlayedTasks:
        return evaluate_tasks(
            self.controller, study.sampling, tasks, self.console, seed=study.seed, samples=samples, search=search
        )

    @property
    def read(self) -> int:
        """Tokens that were read for values so far."""
        return self.critic.encoded_tokens if self.critic else 0

    def lines(self, result: PlayedTasks) -> list[list[Scores]]:
        return lines_of(result, self.critic, getattr(self.env, "grammar", None))


@dataclass
class StudyResult:
    """What was measured."""

    points: list[Point] = field(default_factory=list)
    stops: list[dict[str, Any]] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    """Of the mixed scorers, as they were chosen or given."""


def check(study: Study, player: Player, split: str) -> None:
    """Raises UserError where a scorer has nothing to go by."""
    for kind in study.kinds:
        if kind.asks_critic and player.critic is None:
            raise UserError(
                f"the scorer {kind} needs a critic, and this model has none: name a run of an algorithm with a critic, "
                "or other scorers with --scorer"
            )
        if kind in (ScorerKind.END_VALUE, ScorerKind.END_VALUE_LOGPROB) and not player.verifies:
            raise UserError(
                f"the scorer {kind} needs a critic whose last value learned the outcome: train with --selfac."
                "terminal-target outcome, or take value"
            )
    if asks_oracle(study.agent, study.kinds) and not has_oracle(player.env, split):
        raise UserError(f"the scorer oracle needs an oracle, and the environment {player.env.name} has none")
    if study.agent == Agent.TOT:
        for tot in plans(study):
            check_slots(tot, study.slots)


def measure(study: Study, player: Player, split: str, tasks: Sequence[Task]) -> StudyResult:
    """Everything that was study for. Raises UserError."""
    valid: list[list[Scores]] = []
    if "validation" in study.parts:
        chosen = pick_tasks(player.env, "valid", study.parts["validation"].tasks)
        if split == "valid":
            raise UserError("what is chosen on validation tasks is measured on others: leave --split at test")
        valid = player.lines(player.play(chosen, study, samples_of(study)))
    ways = {Agent.BEST_OF_N: _best_of_n, Agent.TOT: _tot, Agent.EARLY_STOP: _early_stop}
    return ways[study.agent](study, player, tasks, valid)


def samples_of(study: Study) -> int:
    """Episodes of each task that are chosen from, or from which a weight is learned."""
    if study.agent == Agent.BEST_OF_N:
        settings: BestOfN = study.parts["best_of_n"]
        return max(settings.n)
    return study.samples


def weights_of(study: Study, kind: ScorerKind, valid: Sequence[Sequence[Scores]]) -> Weights:
    """How a scorer weighs what it goes by: as likelihood, or as it does best on validation tasks."""
    likelihood: Likelihood = study.parts.get("logprob", Likelihood())
    weights = Weights(likelihood.form, likelihood.weight or 1.0)
    if not kind.mixed or likelihood.weight:
        return weights
    return best_of_n.choose_weight(valid, kind, min(samples_of(study), 4), weights)


def _best_of_n(study: Study, player: Player, tasks: Sequence[Task], valid: list[list[Scores]]) -> StudyResult:
    settings: BestOfN = study.parts["best_of_n"]
    before = player.read
    lines = player.lines(player.play(tasks, study, max(settings.n)))
    value_tokens = (player.read - before) / max(1, sum(map(len, lines)))
    result = StudyResult([single(lines)])
    for kind in study.kinds:
        weights = weights_of(study, kind, valid)
        if kind.mixed:
            result.weights[kind] = weights.weight
        result.points += [best_of_n.point(lines, kind, n, weights, value_tokens) for n in sorted(settings.n)]
    return result


def single(tasks: Sequence[Sequence[Scores]]) -> Point:
    """One episode of each task: what every way of spending more has to beat."""
    success = tuple(mean([line.success for line in lines]) for lines in tasks)
    tokens = tuple(mean([float(sum(line.tokens)) for line in lines]) for lines in tasks)
    return Point(Agent.REACT, "none", 1, success, tokens)


def plans(study: Study) -> list[Any]:
    """The settings of the search at each budget."""
    tot, sweep = study.parts["tot"], study.parts["sweep"]
    assert isinstance(sweep, Sweep)
    try:
        return [replace(tot, branch=branch) for branch in sorted(sweep.branch)] or [tot]
    except ValueError as error:
        raise UserError(str(error)) from None


def searched(
    study: Study, player: Player, tasks: Sequence[Task], tot: ToTSettings, kind: ScorerKind, weights: Weights,
    budget: int,
) -> Point:  # fmt: skip
    """What a search that ``kind`` leads makes of each task. ``budget`` is what the point is called by."""
    before = player.read
    plan = SearchPlan(tot, Scoring(kind, weights.form, weights.weight, player.discount))
    result = player.play(tasks, study, 1, plan)
    searches = [o if isinstance(o, Searched) else None for o in result.outcomes]
    success = tuple(math.nan if s is None else float(bool(s.success)) for s in searches)
    tokens = tuple(math.nan if s is None else float(s.sampled_tokens) for s in searches)
    return Point(Agent.TOT, kind, budget, success, tokens, (player.read - before) / max(1, len(tasks)))


def _tot(study: Study, player: Player, tasks: Sequence[Task], valid: list[list[Scores]]) -> StudyResult:
    result = StudyResult([single(player.lines(player.play(tasks, study, 1)))])
    for kind in study.kinds:
        weights = weights_of(study, kind, valid)
        if kind.mixed:
            result.weights[kind] = weights.weight
        result.points += [searched(study, player, tasks, tot, kind, weights, tot.branch) for tot in plans(study)]
    return result


def _early_stop(study: Study, player: Player, tasks: Sequence[Task], valid: list[list[Scores]]) -> StudyResult:
    settings: EarlyStop = study.parts["early_stop"]
    lines = player.lines(player.play(tasks, study, study.samples))
    result = StudyResult([single(lines)])
    likelihood: Likelihood = study.parts.get("logprob", Likelihood())
    for kind in study.kinds:
        stop, figures = stopping(lines, valid, kind, settings, likelihood)
        if kind.mixed:
            result.weights[kind] = stop.weights.weight
        result.stops.append(figures)
    return result


def stopping(
    tasks: Sequence[Sequence[Scores]], valid: Sequence[Sequence[Scores]], kind: ScorerKind, settings: EarlyStop,
    likelihood: Likelihood,
) -> tuple[early_stop.Stop, dict[str, Any]]:  # fmt: skip
    """The rule that does best on validation episodes, and what it saves and loses on those of ``tasks``."""
    flat = [line for mine in valid for line in mine]
    weights = Weights(likelihood.form, likelihood.weight or 1.0)
    tried = best_of_n.candidates(valid, kind, weights) if kind.mixed and not likelihood.weight else [weights]
    stop = early_stop.choose(flat, kind, tried, settings.first, settings.max_loss)
    return stop, {
        "scorer": kind.value,
        "rule": stop.rule.value,
        "threshold": stop.threshold,
        "validation_saved": early_stop.saved(flat, stop),
        "figures": early_stop.figures(tasks, stop),
        "stopped": stopped(tasks, stop),
    }


def stopped(tasks: Sequence[Sequence[Scores]], stop: early_stop.Stop) -> dict[str, float]:
    """What is left: success, and sampled tokens per episode."""
    lines = [line for mine in tasks for line in mine]
    ends = [stop.turns(line) for line in lines]
    return {
        "success": mean([line.success * (end == len(line.tokens)) for line, end in zip(lines, ends, strict=True)]),
        "tokens": mean([float(sum(line.tokens[:end])) for line, end in zip(lines, ends, strict=True)]),
    }


def scored_player(controller: Controller, policies: Policies, env: TextEnv, console: Console) -> Player:
    """The player of the trained policy, with the discount and the meaning of its critic's values."""
    values = policies.algorithm.values if policies.algorithm else ValueMeaning()
    return Player(controller, env, console, policies.critic, values.discount, values.verifies)
