"""Who plays a suite: an agent without a model, a model in this process, or a served one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from agent_envs.core import Task, TextEnv
from agents.tree.episode import Job
from runners.benching.fingerprints import FixedTasks
from runners.benching.results import TaskResult
from runners.benching.settings import Baseline
from runners.command_line.errors import UserError
from runners.evaluation.random_agents import random_agent
from runners.evaluation.scripted import Agent, Scripted, play


class Player(Protocol):
    """Plays the tasks of one entry after the other."""

    @property
    def agent(self) -> Mapping[str, Any]:
        """What plays, wherever it lies: part of the digest."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """How it plays: part of the digest."""

    def play(self, fixed: FixedTasks, tasks: Sequence[Task], on_end: Callable[[], None]) -> list[TaskResult]:
        """What became of each task. Raises UserError."""


@dataclass(frozen=True)
class ScriptedPlayer:
    """The scripted expert or the random agent."""

    baseline: Baseline
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def agent(self) -> Mapping[str, Any]:
        return {"kind": self.baseline.value}

    def play(self, fixed: FixedTasks, tasks: Sequence[Task], on_end: Callable[[], None]) -> list[TaskResult]:
        results = []
        for task in tasks:
            job = Job(task, run_seed=self.seed)
            episode = play(fixed.env, self._agent(fixed.env, job), task, job.seed("env"))
            results.append(TaskResult.of_scripted(task.id, episode))
            on_end()
        return results

    def _agent(self, env: TextEnv, job: Job) -> Agent:
        """Chance begins anew with each task, so that a result depends on no other."""
        if self.baseline is Baseline.EXPERT:
            return Scripted(env.expert)
        return random_agent(env, np.random.default_rng(job.seed("random agent")))

    def check(self, suite: Sequence[FixedTasks]) -> None:
        """Raises UserError where an environment has no expert."""
        lacking = [fixed.entry.name for fixed in suite if not fixed.env.has_expert]
        if self.baseline is Baseline.EXPERT and lacking:
            raise UserError(f"--agent expert: the environment of {lacking[0]} has no scripted expert")
