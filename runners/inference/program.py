"""Measures agents that use scores: every scorer on the same tasks, with the same policy, at the same budgets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console

from agent_envs.core import Task, TextEnv
from agents.engine import SamplingSettings
from agents.rollout.search.settings import ScorerKind, Scoring, SearchPlan, ToTSettings
from agents.tree.episode import Searched
from algorithms.base import ValueMeaning
from runners.command_line.errors import UserError
from runners.evaluation.measure import PlayedTasks, evaluate_tasks
from runners.evaluation.policies import Policies
from runners.evaluation.tasks import has_oracle, pick_tasks
from runners.inference import best_of_n, early_stop
from runners.inference.episode_scores import Scores, lines_of
from runners.inference.settings import Agent, EarlyStop, Likelihood, asks_oracle
from runners.inference.success_by_tokens import Point
from runners.statistics.intervals import mean
from runners.training.searching import check_slots
from runners.workers.controller import Controller


@dataclass(frozen=True)
class Study:
    """What is measured: the policy that was loaded, with the scorers that lead it."""

    agent: Agent
    kinds: tuple[ScorerKind, ...]
    parts: Mapping[str, Any]
    sampling: SamplingSettings
    samples: int
    seed: int
    controller: Controller
    policies: Policies
    env: TextEnv
    console: Console
    job_env: str = ""
    """What jobs call the environment: its name, where the controller's workers have several."""

    @property
    def values(self) -> ValueMeaning:
        """What the critic's values mean."""
        return self.policies.algorithm.values if self.policies.algorithm else ValueMeaning()

    @property
    def read(self) -> int:
        """Tokens that were read for values so far."""
        return self.policies.critic.encoded_tokens if self.policies.critic else 0

    @property
    def likelihood(self) -> Likelihood:
        found: Likelihood = self.parts.get("logprob", Likelihood())
        return found

    def play(self, tasks: Sequence[Task], samples: int, search: SearchPlan | None = None) -> PlayedTasks:
        return evaluate_tasks(
            self.controller, self.sampling, tasks, self.console, seed=self.seed, samples=samples, search=search,
            env=self.job_env,
        )  # fmt: skip

    def lines(self, tasks: Sequence[Task], samples: int) -> list[list[Scores]]:
        """Plays ``samples`` episodes of each task and scores them."""
        return lines_of(self.play(tasks, samples), self.policies.critic, getattr(self.env, "grammar", None))

    def scorings(self, valid: Sequence[Sequence[Scores]]) -> list[Scoring]:
        """The scorers, each with the weights that it was told, or with which it does best on validation tasks."""
        told = [self.likelihood.scoring(kind, self.values.discount) for kind in self.kinds]
        if self.likelihood.weight:
            return told
        most = min(samples_of(self), 4)
        return [best_of_n.choose_weight(valid, one, most) if one.kind.mixed else one for one in told]


@dataclass
class StudyResult:
    """What was measured."""

    points: list[Point] = field(default_factory=list)
    stops: list[dict[str, Any]] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    """Of the mixed scorers, as they were chosen or given."""


def check(study: Study, split: str) -> None:
    """Raises UserError where a scorer has nothing to go by."""
    for kind in study.kinds:
        if kind.asks_critic and study.policies.critic is None:
            raise UserError(
                f"the scorer {kind} needs a critic, and this model has none: name a run of an algorithm with a critic, "
                "or other scorers with --scorer"
            )
        if kind in (ScorerKind.END_VALUE, ScorerKind.END_VALUE_LOGPROB) and not study.values.verifies:
            raise UserError(
                f"the scorer {kind} needs a critic whose last value learned the outcome: train with --selfac."
                "terminal-target outcome, or take value"
            )
    if asks_oracle(study.agent, study.kinds) and not has_oracle(study.env, split):
        raise UserError(f"the scorer oracle needs an oracle, and the environment {study.env.name} has none")
    if study.agent == Agent.TOT:
        for tot in plans(study):
            check_slots(tot, study.controller.portion)


def measure(study: Study, split: str, tasks: Sequence[Task]) -> StudyResult:
    """Everything that the study is for. Raises UserError."""
    valid: list[list[Scores]] = []
    if "validation" in study.parts:
        chosen = pick_tasks(study.env, "valid", study.parts["validation"].tasks, study.console)
        valid = study.lines(chosen, samples_of(study))
    ways = {Agent.BEST_OF_N: _best_of_n, Agent.TOT: _tot, Agent.EARLY_STOP: _early_stop}
    return ways[study.agent](study, tasks, valid)


def samples_of(study: Study) -> int:
    """Episodes of each task that are chosen from, or from which a weight is learned."""
    return max(study.parts["best_of_n"].n) if study.agent == Agent.BEST_OF_N else study.samples


def _best_of_n(study: Study, tasks: Sequence[Task], valid: list[list[Scores]]) -> StudyResult:
    budgets, scorings, before = sorted(study.parts["best_of_n"].n), study.scorings(valid), study.read
    lines = study.lines(tasks, budgets[-1])
    value_tokens = (study.read - before) / max(1, sum(map(len, lines)))
    points = [best_of_n.point(lines, scoring, n, value_tokens) for scoring in scorings for n in budgets]
    return StudyResult([single(lines), *points], weights=_mixed(scorings))


def _mixed(scorings: Sequence[Scoring]) -> dict[str, float]:
    return {one.kind: one.weight for one in scorings if one.kind.mixed}


def single(tasks: Sequence[Sequence[Scores]]) -> Point:
    """One episode of each task: what every way of spending more has to beat."""
    success = tuple(mean([line.success for line in lines]) for lines in tasks)
    tokens = tuple(mean([float(sum(line.tokens)) for line in lines]) for lines in tasks)
    return Point(Agent.REACT, "none", 1, success, tokens)


def plans(study: Study) -> list[Any]:
    """The settings of the search at each budget."""
    tot, sweep = study.parts["tot"], study.parts["sweep"]
    try:
        return [replace(tot, branch=branch) for branch in sorted(sweep.branch)] or [tot]
    except ValueError as error:
        raise UserError(str(error)) from None


def searched(study: Study, tasks: Sequence[Task], tot: ToTSettings, scoring: Scoring, budget: int) -> Point:
    """What a search that a scorer leads makes of each task. ``budget`` is what the point is called by."""
    before = study.read
    outcomes = study.play(tasks, 1, SearchPlan(tot, scoring)).outcomes
    searches = [o if isinstance(o, Searched) else None for o in outcomes]
    success = tuple(math.nan if s is None else float(bool(s.success)) for s in searches)
    tokens = tuple(math.nan if s is None else float(s.sampled_tokens) for s in searches)
    return Point(Agent.TOT, scoring.kind, budget, success, tokens, (study.read - before) / max(1, len(tasks)))


def _tot(study: Study, tasks: Sequence[Task], valid: list[list[Scores]]) -> StudyResult:
    scorings, points = study.scorings(valid), [single(study.lines(tasks, 1))]
    points += [searched(study, tasks, tot, scoring, tot.branch) for scoring in scorings for tot in plans(study)]
    return StudyResult(points, weights=_mixed(scorings))


def _early_stop(study: Study, tasks: Sequence[Task], valid: list[list[Scores]]) -> StudyResult:
    lines = study.lines(tasks, study.samples)
    found = [stopping(lines, valid, kind, study.parts["early_stop"], study.likelihood) for kind in study.kinds]
    scorings = [stop.scoring for stop, _ in found]
    return StudyResult([single(lines)], [figures for _, figures in found], _mixed(scorings))


def stopping(
    tasks: Sequence[Sequence[Scores]], valid: Sequence[Sequence[Scores]], kind: ScorerKind, settings: EarlyStop,
    likelihood: Likelihood,
) -> tuple[early_stop.Stop, dict[str, Any]]:  # fmt: skip
    """The rule that does best on validation episodes, and what it saves and loses on those of ``tasks``."""
    flat, lines = [line for mine in valid for line in mine], [line for mine in tasks for line in mine]
    scoring = likelihood.scoring(kind)
    tried = best_of_n.candidates(valid, scoring) if kind.mixed and not likelihood.weight else [scoring]
    stop = early_stop.choose(flat, tried, settings.first, settings.max_loss)
    ends = [(line, stop.turns(line)) for line in lines]
    return stop, {
        "scorer": kind.value,
        "rule": stop.rule.value,
        "threshold": stop.threshold,
        "validation_saved": early_stop.saved(flat, stop),
        "figures": early_stop.figures(lines, stop),
        "stopped": {
            "success": mean([line.success * (end == len(line.tokens)) for line, end in ends]),
            "tokens": mean([float(sum(line.tokens[:end])) for line, end in ends]),
        },
    }
