"""Agents without a model: what a task is worth to one who does not read it. They see the observations only."""

import re
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from agent_envs.actions import render
from agent_envs.core import Task, TextEnv

_LINK = re.compile(r"\{(\d+):([^{}]*)\}")


class Agent(Protocol):
    """Answers every observation of one episode with a turn."""

    def begin(self, task: Task) -> None:
        """A new episode; only the prompt, the language and the level of the task may be read."""

    def act(self, observation: str) -> str:
        """The next turn; the first observation is the prompt."""


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
class RandomAgent:
    """Begins at the page the question names, then takes any action with plausible arguments."""

    rng: np.random.Generator
    seen: list[str] = field(default_factory=list)
    links: int = 0
    prompt: str | None = None

    def begin(self, task: Task) -> None:
        self.seen, self.links, self.prompt = [start_of(task)], 0, task.prompt

    def act(self, observation: str) -> str:
        if observation == self.prompt:
            self.prompt = None
            return render("NAVIGATE", self.seen[0])
        result = [title for _, title in _LINK.findall(observation)]
        self.links = len(result) or self.links
        self.seen += result
        title = self.seen[int(self.rng.integers(len(self.seen)))]
        number = int(self.rng.integers(1, max(self.links, 1) + 1))
        calls = [
            ("NAVIGATE", title),
            ("SEARCH", title),
            ("CLICK", str(number)),
            ("FIND", title.split()[0]),
            ("SAVE_LINE_IDS", str(number + 1)),
            ("BACK", ""),
            ("SUBMIT", title),
        ]
        return render(*calls[int(self.rng.integers(len(calls)))])


@dataclass
class FirstLinkAgent:
    """Goes to the page the question names, clicks link 1 for every hop but the last, submits the next first link."""

    task: Task | None = None
    opened: int = 0

    def begin(self, task: Task) -> None:
        self.task, self.opened = task, 0

    def act(self, observation: str) -> str:
        assert self.task is not None, "begin comes first"
        first = _LINK.search(observation)
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


def start_of(task: Task) -> str:
    """The name a question begins with, read off its prompt."""
    if task.language == "zh":
        return task.prompt.removeprefix("从").partition("的")[0]
    return task.prompt.removeprefix("What is ").removeprefix("Start with ").partition("'s ")[0]
