"""Agents without a model, and an episode that one of them plays in this process.

Invariant: an agent sees observations only, but for experts and random agents that ask the environment itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agent_envs.core import Task, TextEnv
from runners.command_line.blame import blamed


class Agent(Protocol):
    """Answers every observation of one episode with a turn."""

    def begin(self, task: Task) -> None:
        """A new episode; only the prompt, the language and the level of the task may be read."""

    def act(self, observation: str) -> str:
        """The next turn; the first observation is the prompt."""


@dataclass(frozen=True)
class Scripted:
    """An agent that asks the environment, or chance, and reads nothing."""

    turn: Callable[[], str]

    def begin(self, task: Task) -> None:
        pass

    def act(self, observation: str) -> str:
        return self.turn()


@dataclass
class ScriptedEpisode:
    """What an agent without a model did on one task."""

    prompt: tuple[str, str]
    """System and user message."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """(action text, observation text) pairs."""
    reward: float = 0.0
    success: bool = False


def play(env: TextEnv, agent: Agent, task: Task, seed: int | None = None) -> ScriptedEpisode:
    """One whole episode; ``seed`` is that of the environment. Raises UserError where the environment fails."""
    with blamed(env.name, f"in the task {task.id}"):
        observation, _ = env.reset(seed=seed, options={"task": task})
        agent.begin(task)
        episode, over = ScriptedEpisode((env.system_prompt(), observation)), False
        while not over:
            action = agent.act(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            episode.texts.append((action, observation))
            episode.reward += reward
            over = terminated or truncated
        episode.success = bool(info["success"])
    return episode
