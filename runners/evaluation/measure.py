"""Plays held-out tasks with a policy and keeps what came of it, ready to be averaged over tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_envs.core import Task, TextEnv
from agents.engine import SamplingSettings
from agents.rollout.search.settings import SearchPlan
from agents.tree.episode import Episode, Fault, Job
from runners.command_line.errors import UserError
from runners.statistics.intervals import Interval, bootstrap, bootstrap_gain, pass_at_k
from runners.workers.controller import Controller


@dataclass(frozen=True)
class PlayedTasks:
    """What one policy did, ``samples`` episodes per task, in the order of the tasks."""

    outcomes: tuple[Episode | Fault, ...]
    """A fault stands where the environment broke: it is part of no average."""
    samples: int

    @property
    def episodes(self) -> list[Episode]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Episode)]

    @property
    def tasks(self) -> list[Task]:
        return [self.outcomes[i].job.task for i in range(0, len(self.outcomes), self.samples)]

    def _of_tasks(self) -> Iterator[list[Episode]]:
        for i in range(0, len(self.outcomes), self.samples):
            yield [o for o in self.outcomes[i : i + self.samples] if isinstance(o, Episode)]

    def per_task(self, value: Callable[[Episode], float]) -> list[float]:
        """The mean over the samples of each task; not a number for a task that was never played to its end."""
        return [sum(map(value, mine)) / len(mine) if mine else math.nan for mine in self._of_tasks()]

    def successes(self) -> list[float]:
        return self.per_task(lambda e: float(e.success or 0))

    def mean(self, value: Callable[[Episode], float]) -> dict[str, float]:
        """Mean over tasks with its 95 % interval: {"mean", "low", "high"}."""
        return asdict(bootstrap(_known(self.per_task(value))))

    def success(self) -> dict[str, float]:
        return self.mean(lambda e: float(e.success or 0))

    def right_of(self) -> list[tuple[int, int]]:
        """(successes, episodes) of each task."""
        return [(sum(bool(e.success) for e in mine), len(mine)) for mine in self._of_tasks()]

    def pass_at(self, k: int) -> Interval:
        """Unbiased pass@k with its interval, over the tasks with at least k episodes."""
        return bootstrap([pass_at_k(n, right, k) for right, n in self.right_of() if n >= k])

    def metric(self, name: str) -> dict[str, float]:
        """One of the environment's metrics at the end of the episodes, 0 where it was not reached."""
        return self.mean(lambda e: e.metrics.get(name, 0.0))

    def where(self, key: str, value: object) -> PlayedTasks:
        """The part of the tasks whose ``key`` (level, language) is ``value``."""
        return PlayedTasks(tuple(o for o in self.outcomes if getattr(o.job.task, key) == value), self.samples)


def paired_gain(before: PlayedTasks, after: PlayedTasks) -> Interval:
    """The difference in success on the tasks that both played."""
    pairs = zip(before.successes(), after.successes(), strict=True)
    known = [(a, b) for a, b in pairs if not (math.isnan(a) or math.isnan(b))]
    return bootstrap_gain([a for a, _ in known], [b for _, b in known])


def _known(values: Sequence[float]) -> list[float]:
    return [x for x in values if not math.isnan(x)]


def has_oracle(env: TextEnv, split: str) -> bool:
    """Whether the environment can tell an agent's chance of success; it is reset for that."""
    env.reset(seed=0, options={"split": split})
    return env.oracle() is not None


def pick_tasks(env: TextEnv, split: str, n: int) -> list[Task]:
    """``n`` tasks spread evenly over a split: always the same ones. Raises UserError when there are fewer."""
    tasks = env.tasks(split)
    if n > len(tasks):
        raise UserError(f"the {split} split of {env.name} has {len(tasks)} tasks, not {n}")
    return [tasks[int(i)] for i in np.linspace(0, len(tasks) - 1, n).round().astype(int)]


def evaluate_tasks(
    controller: Controller,
    sampling: SamplingSettings,
    tasks: Sequence[Task],
    console: Console,
    *,
    seed: int,
    samples: int = 1,
    search: SearchPlan | None = None,
) -> PlayedTasks:
    """Plays (or searches) every task ``samples`` times with the loaded policy. Raises UserError when all broke."""
    jobs = [Job(task, sample, seed) for task in tasks for sample in range(samples)]
    with Progress(
        TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        job = bar.add_task("", total=len(jobs))
        played = controller.play(jobs, sampling, on_end=lambda: bar.advance(job), search=search)
    if not played.episodes:
        raise UserError(f"no episode was played to its end; the last one failed with: {played.faults[-1]}")
    return PlayedTasks(tuple(played.outcomes), samples)
