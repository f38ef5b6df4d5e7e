"""The stream of training tasks.

Invariant: each task comes once per pass; the order is drawn from the stream's own generator, and ``state`` holds all
that the next task depends on.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agent_envs.core import Task, TaskSet


class TaskStream:
    """Training tasks in a seeded order without end."""

    def __init__(self, tasks: TaskSet, seed: int) -> None:
        self.tasks = tasks
        self.rng = np.random.default_rng([seed, 0])
        self.visit, self.at = 0, 0
        self._shuffle()

    def _shuffle(self) -> None:
        self.before = self.rng.bit_generator.state
        self.order = self.rng.permutation(len(self.tasks))

    def __next__(self) -> tuple[Task, int]:
        """The next task and how often it came before."""
        if self.at == len(self.order):
            self.visit, self.at = self.visit + 1, 0
            self._shuffle()
        task = self.tasks[int(self.order[self.at])]
        self.at += 1
        return task, self.visit

    def state(self) -> dict[str, Any]:
        """Plain values for JSON: the cursor, and the generator as it was before this pass was shuffled."""
        return {"visit": self.visit, "at": self.at, "rng": self.before}

    def load(self, state: Mapping[str, Any]) -> None:
        self.visit, self.at = state["visit"], state["at"]
        self.rng.bit_generator.state = state["rng"]
        self._shuffle()
