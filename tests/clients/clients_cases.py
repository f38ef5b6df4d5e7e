"""What the tests of other people's trainers and clients share: small settings, and episodes played directly."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs import registry

SETTINGS: dict[str, dict[str, Any]] = {
    "wiki": {"train_worlds": 4, "valid_worlds": 1, "test_worlds": 1, "invalid_penalty": 0.125},
    "math": {"languages": ["en"], "verifier": "exact"},
    "puzzle": {},
}
"""The wiki fines turns that it refuses, so that an episode has more than one reward."""
WRONG = ("<think></think><action>NAVIGATE()</action>", "<think></think><action>SUBMIT(nothing of the kind)</action>")
"""A turn that is refused, and a wrong answer."""


@dataclass(frozen=True)
class Played:
    """An episode as the environment alone plays it."""

    task: str
    prompt: str
    system: str
    turns: Sequence[str]
    texts: Sequence[str]
    rewards: Sequence[float]
    success: bool

    @property
    def total(self) -> float:
        return sum(self.rewards)


def played(env: str, number: int, *, split: str = "test", wrong: bool = False, seed: int = 0) -> Played:
    """An episode of the expert, or one that goes on with `WRONG` after its first turn."""
    made = registry.from_settings(env, **SETTINGS[env])
    task = made.tasks(split)[number]
    prompt, _ = made.reset(seed=seed, options={"task": task.id})
    system, turns, texts, rewards, over = made.system_prompt(), [], [], [], False
    while not over:
        turns.append(WRONG[len(turns) - 1] if wrong and turns else made.expert())
        text, reward, terminated, truncated, info = made.step(turns[-1])
        texts.append(text)
        rewards.append(reward)
        over = terminated or truncated
    return Played(task.id, prompt, system, turns, texts, rewards, info["success"])


def example(heading: str, language: str = "python") -> str:
    """The last code block of that language in a section of docs/trainers.md."""
    page = (Path(__file__).resolve().parent.parent.parent / "docs" / "trainers.md").read_text("utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[-1]
