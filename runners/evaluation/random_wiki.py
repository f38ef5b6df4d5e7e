"""A random agent of the wiki: it sees the observations only, and takes any action with plausible arguments."""

import re
from dataclasses import dataclass, field

import numpy as np

from agent_envs.actions import render
from agent_envs.core import Task

LINK = re.compile(r"\{(\d+):([^{}]*)\}")
"""A link on a page: its number and its title."""


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
        result = [title for _, title in LINK.findall(observation)]
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


def start_of(task: Task) -> str:
    """The name a question begins with, read off its prompt."""
    if task.language == "zh":
        return task.prompt.removeprefix("从").partition("的")[0]
    return task.prompt.removeprefix("What is ").removeprefix("Start with ").partition("'s ")[0]
