"""Success on fixed tasks, measured while a run learns: always the same tasks, sampled and greedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from torch import Tensor

from agent_envs.core import Task
from runners.evaluation.measure import evaluate_tasks
from runners.settings.play_settings import job_env
from runners.settings.train_settings import Train
from runners.training.report import Report
from runners.workers.controller import Controller


class Measuring:
    """``tasks`` are those of each split that is measured, by environment."""

    def __init__(
        self,
        tasks: Mapping[str, Mapping[str, Sequence[Task]]],
        train: Train,
        controller: Controller,
        report: Report,
        console: Console,
    ) -> None:
        self.tasks, self.train = tasks, train
        self.controller, self.report, self.console = controller, report, console

    def due(self, update: int, last: bool) -> str | None:
        """The split that is measured after an update: test before the first and after the ``last`` one."""
        split = "test" if update == 0 or last else "valid"
        late = split == "valid" and self.train.eval_every and update % self.train.eval_every
        return None if late or split not in self.tasks else split

    def measure(self, split: str, update: int, policy: Mapping[str, Tensor], seconds: Callable[[], float]) -> None:
        """Records success; ``seconds`` says how long the run has worked by then."""
        self.controller.load(update, policy)
        for env, tasks in self.tasks[split].items():
            name = job_env(env, self.train.env)
            for mode, greedy in (("sampled", False), ("greedy", True)):
                sampling = self.train.sampling(greedy)
                result = evaluate_tasks(self.controller, sampling, tasks, self.console, seed=self.train.seed, env=name)
                self.report.evaluation(update, split, mode, asdict(result.success()), seconds(), name)
