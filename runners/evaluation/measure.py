"""Plays held-out tasks with a policy and keeps what came of it, ready to be averaged over tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from agent_envs.core import Task
from agents.engine import SamplingSettings
from agents.rollout.search.settings import SearchPlan
from agents.tree.episode import Episode, Fault, Job
from runners.command_line.errors import UserError
from runners.reporting.progress import evaluating
from runners.statistics.intervals import Interval, bootstrap, pass_at_k
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

    def mean(self, value: Callable[[Episode], float]) -> Interval:
        """Mean over tasks."""
        return bootstrap(self.per_task(value))

    def success(self) -> Interval:
        return bootstrap(self.successes())

    def right_of(self) -> list[tuple[int, int]]:
        """(successes, episodes) of each task."""
        return [(sum(bool(e.success) for e in mine), len(mine)) for mine in self._of_tasks()]

    def pass_at(self, k: int) -> tuple[Interval | None, int]:
        """Unbiased pass@k with its interval, and the number of tasks it is over: those with at least k episodes."""
        values = [pass_at_k(n, right, k) for right, n in self.right_of() if n >= k]
        return bootstrap(values) if values else None, len(values)

    def metric(self, name: str) -> Interval:
        """One of the environment's metrics at the end of the episodes, 0 where it was not reached."""
        return self.mean(lambda e: e.metrics.get(name, 0.0))

    def where(self, key: str, value: object) -> PlayedTasks:
        """The part of the tasks whose ``key`` (level, language) is ``value``."""
        return PlayedTasks(tuple(o for o in self.outcomes if getattr(o.job.task, key) == value), self.samples)


def paired_gain(before: PlayedTasks, after: PlayedTasks) -> Interval | None:
    """The difference in success on the tasks that both played; None where there is no such task."""
    gains = [b - a for a, b in zip(before.successes(), after.successes(), strict=True)]
    return None if all(map(math.isnan, gains)) else bootstrap(gains)


def evaluate_tasks(
    controller: Controller,
    sampling: SamplingSettings,
    tasks: Sequence[Task],
    console: Console,
    *,
    seed: int,
    samples: int = 1,
    search: SearchPlan | None = None,
    env: str = "",
) -> PlayedTasks:
    """Plays (or searches) every task ``samples`` times with the loaded policy; ``env`` names the environment of the
    tasks where the worker has several. Raises UserError when all broke."""
    jobs = [Job(task, sample, seed, env=env) for task in tasks for sample in range(samples)]
    with evaluating(console, len(jobs)) as advance:
        played = controller.play(jobs, sampling, on_end=advance, search=search)
    if not played.episodes:
        raise UserError(f"no episode was played to its end; the last one failed with: {played.faults[-1]}")
    return PlayedTasks(tuple(played.outcomes), samples)
