"""The identity environment with faults: in chosen tasks, one of five kinds each, or in every fifth episode."""

import itertools
import os
import random
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv

KINDS = ("raise", "hang", "exit", "memory", "flood")
# Most faults are exceptions, as in life; those that cost a process, or the wait for a deadline, are rarer.
MIXED = [*("raise",) * 60, *KINDS[1:]]
_episodes = itertools.count()
_rng = random.Random(os.getpid())  # a process that a fault ended must not be followed by one that does the same


@dataclass(frozen=True)
class FaultyConfig(IdentityConfig):
    """Settings of the faulty environment."""

    tasks: int = 0
    """The first so many training tasks break, each in its own way."""
    every: int = 0
    """Every so many episodes of a process one breaks; 0 for none."""
    only: str = ""
    """The one kind of fault that ``every`` draws; all five, mixed, if empty."""


def do(kind: str) -> Any:
    if kind == "raise":
        raise OSError("the disk is gone")
    if kind == "hang":
        time.sleep(1000)
    if kind == "exit":
        os._exit(3)
    if kind == "memory":
        return bytearray(1 << 40)
    return "x" * (3 << 20), 0.0, False, False, {}


class FaultyEnv(IdentityEnv):
    """Breaks in the second turn of an episode."""

    name: ClassVar[str] = "faulty"
    Config: ClassVar[type[Any]] = FaultyConfig
    config: FaultyConfig

    def _begin(self, task: Any) -> Any:
        self.fate: str | None = None
        number = int(task.id.rpartition("-")[2])
        if task.split == "train" and number < self.config.tasks:
            self.fate = KINDS[number % len(KINDS)]
        episode = next(_episodes)
        if self.config.every and episode % self.config.every == self.config.every - 1:
            self.fate = self.config.only or _rng.choice(MIXED)
        return super()._begin(task)

    def step(self, action: str) -> Any:
        if self.turn == 1 and self.fate is not None:
            return do(self.fate)
        return super().step(action)
