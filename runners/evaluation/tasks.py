"""The tasks of an environment's splits. What an environment raises in here ends a program with one line."""

from typing import Any

import numpy as np
from rich.console import Console

from agent_envs.core import Task, TextEnv
from runners.command_line.blame import blamed
from runners.command_line.errors import UserError


class SplitTasks:
    """The tasks of a split of an environment, at least one. Raises UserError where the environment fails."""

    def __init__(self, env: TextEnv, split: str) -> None:
        self.env, self.split = env, split
        with blamed(env.name, f"to list its {split} tasks"):
            self._tasks = env.tasks(split)
            self._size = len(self._tasks)
        if not self._size:
            raise UserError(f"the environment {env.name} has no {split} tasks")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Task:
        with blamed(self.env.name, f"to make {self.split} task {index}"):
            task = self._tasks[index]
        if not isinstance(task, Task):
            raise UserError(f"{self.split} task {index} of the environment {self.env.name} is not an agent_envs.Task")
        return task

    def find(self, task_id: str) -> Task | None:
        """The task of that id, or None where there is none."""
        with blamed(self.env.name, f"to find a {self.split} task"):
            return self._tasks.find(task_id)


def pick_tasks(env: TextEnv, split: str, n: int, console: Console | None = None) -> list[Task]:
    """``n`` tasks spread evenly over a split: always the same ones. All of them where there are fewer, which
    ``console`` is told. Raises UserError."""
    tasks = SplitTasks(env, split)
    if n > len(tasks):
        if console is not None:
            console.print(
                f"the {split} split of {env.name} has {len(tasks)} tasks, not {n}: all of them are played",
                highlight=False, soft_wrap=True,
            )  # fmt: skip
        n = len(tasks)
    return [tasks[int(i)] for i in np.linspace(0, len(tasks) - 1, n).round().astype(int)]


def has_oracle(env: TextEnv, split: str) -> bool:
    """Whether the environment can tell an agent's chance of success; it is reset for that. Raises UserError."""
    with blamed(env.name, "to begin an episode"):
        env.reset(seed=0, options={"split": split})
        result: Any = env.oracle()
    return result is not None
