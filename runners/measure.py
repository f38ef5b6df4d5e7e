"""Plays held-out tasks with a policy and keeps what came of it, ready to be averaged over tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_envs.core import Task, TextEnv
from agents.chat import Chat
from agents.engine import Engine
from agents.react import Episode, Job, ReActSettings
from agents.rollout import rollout
from runners.config import UserError
from runners.intervals import Interval, bootstrap, pass_at_k


@dataclass(frozen=True)
class Result:
    """Episodes of one policy, ``samples`` per task, in the order of the tasks."""

    episodes: tuple[Episode, ...]
    samples: int

    def per_task(self, value: Callable[[Episode], float]) -> list[float]:
        """The mean over the samples of each task."""
        numbers = np.array([value(e) for e in self.episodes]).reshape(-1, self.samples)
        return [float(x) for x in numbers.mean(axis=1)]

    def successes(self) -> list[float]:
        return self.per_task(lambda e: float(e.success or 0))

    def success(self) -> dict[str, float]:
        """Mean success with its 95 % interval: {"mean", "low", "high"}."""
        return asdict(bootstrap(self.successes()))

    def pass_at(self, k: int) -> Interval:
        """Unbiased pass@k with its interval."""
        return bootstrap([pass_at_k(self.samples, round(s * self.samples), k) for s in self.successes()])

    def metric(self, name: str) -> list[float]:
        """One of the environment's metrics at the end of the episodes, 0 where it was not reached."""
        return self.per_task(lambda e: e.metrics.get(name, 0.0))

    def where(self, key: str, value: object) -> Result:
        """The part of the tasks whose ``key`` (level, language) is ``value``."""
        return Result(tuple(e for e in self.episodes if getattr(e.job.task, key) == value), self.samples)


def pick_tasks(env: TextEnv, split: str, n: int) -> list[Task]:
    """``n`` tasks spread evenly over a split: always the same ones. Raises UserError when there are not so many."""
    tasks = env.tasks(split)
    if n > len(tasks):
        raise UserError(f"the {split} split of {env.name} has {len(tasks)} tasks, not {n}")
    return [tasks[int(i)] for i in np.linspace(0, len(tasks) - 1, n).round().astype(int)]


def evaluate_tasks(
    make_env: Callable[[], TextEnv],
    engine: Engine,
    chat: Chat,
    tasks: Sequence[Task],
    react: ReActSettings,
    console: Console,
    *,
    seed: int,
    samples: int = 1,
) -> Result:
    """Plays every task ``samples`` times with the engine's present policy and sampling."""
    jobs = [Job(task, sample, seed) for task in tasks for sample in range(samples)]
    with Progress(
        TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        job = bar.add_task("", total=len(jobs))
        played = rollout(make_env, engine, chat, jobs, react, on_episode=lambda _: bar.advance(job))
    return Result(tuple(played), samples)
