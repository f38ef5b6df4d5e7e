"""Agents without a model: what a task is worth to one who does not read it. They see the observations only."""

from dataclasses import dataclass

import numpy as np

from agent_envs.actions import render
from agent_envs.core import Task, TextEnv
from runners.evaluation.random_wiki import LINK, start_of
from runners.evaluation.scripted import Agent


def play(env: TextEnv, agent: Agent, task: Task) -> tuple[float, bool, int]:
    """(sum of rewards, success, turns) of one episode."""
    observation, _ = env.reset(options={"task": task})
    agent.begin(task)
    total = 0.0
    while True:
        observation, reward, terminated, truncated, info = env.step(agent.act(observation))
        total += reward
        if terminated or truncated:
            return total, bool(info["success"]), env.turn


@dataclass
class FirstLinkAgent:
    """Goes to the page the question names, clicks link 1 for every hop but the last, submits the next first link."""

    task: Task | None = None
    opened: int = 0

    def begin(self, task: Task) -> None:
        self.task, self.opened = task, 0

    def act(self, observation: str) -> str:
        assert self.task is not None, "begin comes first"
        first = LINK.search(observation)
        self.opened += 1
        if self.opened == 1:
            return render("NAVIGATE", start_of(self.task))
        if self.opened <= self.task.level and first is not None:
            return render("CLICK", "1")
        return render("SUBMIT", first[2] if first is not None else start_of(self.task))


@dataclass
class BlindAgent:
    """Never looks: submits a name or number that was an answer of training, or the name in the question."""

    answers: tuple[str, ...]
    rng: np.random.Generator
    start: str = ""

    def begin(self, task: Task) -> None:
        self.start = start_of(task)

    def act(self, observation: str) -> str:
        return render("SUBMIT", (*self.answers, self.start)[int(self.rng.integers(len(self.answers) + 1))])
