"""The streams of training tasks.

Invariant: each task of an environment comes once per pass; the order is drawn from the stream's own generator, and
``state`` holds all that the next task depends on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agent_envs.core import Task
from runners.evaluation.tasks import SplitTasks


class TaskStream:
    """Training tasks in a seeded order without end."""

    def __init__(self, tasks: SplitTasks | Sequence[Task], seed: int) -> None:
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


class MixedStream:
    """Training tasks of several environments in turn, by their shares.

    The turns repeat with a period of the sum of the shares, each environment spread evenly over it. So the first n
    tasks of a run hold, of each environment, less than one task more or fewer than its share of n; what one update
    leaves over, the next one makes up for. The seed decides where in the period a run begins.
    """

    def __init__(self, tasks: Mapping[str, SplitTasks | Sequence[Task]], shares: Sequence[int], seed: int) -> None:
        self.streams = {env: TaskStream(of_env, seed) for env, of_env in tasks.items()}
        self.turns = list(_turns(dict(zip(tasks, shares, strict=True))))
        self.at = seed % len(self.turns)

    def __next__(self) -> tuple[str, Task, int]:
        """The next environment, its next task, and how often that came before."""
        env = self.turns[self.at]
        self.at = (self.at + 1) % len(self.turns)
        return env, *next(self.streams[env])

    def state(self) -> dict[str, Any]:
        """Plain values for JSON. One environment has the state of its stream alone."""
        states = {env: stream.state() for env, stream in self.streams.items()}
        return {"at": self.at, "streams": states} if len(states) > 1 else next(iter(states.values()))

    def load(self, state: Mapping[str, Any]) -> None:
        if len(self.streams) > 1:
            self.at, states = state["at"], state["streams"]
        else:
            states = dict.fromkeys(self.streams, state)
        for env, stream in self.streams.items():
            stream.load(states[env])


def _turns(shares: Mapping[str, int]) -> Iterator[str]:
    """One period: at each place, the environment that is furthest behind its share; the earlier one where two are."""
    whole, behind = sum(shares.values()), dict.fromkeys(shares, 0)
    for _ in range(whole):
        behind = {env: behind[env] + share for env, share in shares.items()}
        env = max(behind, key=lambda name: behind[name])
        behind[env] -= whole
        yield env
