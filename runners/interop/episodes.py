"""Episodes that a program outside this project plays, one after the other. Knows no library of theirs.

Invariant: text, reward and verdict of a turn are the environment's own. Where no episode runs, a turn is refused and
changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_envs.actions import thoughts_of
from agent_envs.core import TextEnv
from agent_envs.isolation.faults import one_line
from agent_envs.tools import as_turn


class NotRunning(RuntimeError):  # noqa: N818 (a state of the episode)
    """No episode runs that could take a turn."""


@dataclass(frozen=True)
class Turn:
    """What a turn led to."""

    text: str
    """What an agent reads; untrusted, as everything that an environment shows."""
    reward: float
    over: bool
    truncated: bool
    success: bool | None
    """The verdict, once it is over."""
    invalid: bool


class Episodes:
    """Episodes of ``env``; with ``calls`` its actions are calls of tools, else texts."""

    def __init__(self, env: TextEnv, *, calls: bool = False) -> None:
        self.env, self._calls = env, calls
        self.tools: list[dict[str, Any]] = []
        """The tools of the episode, as JSON schemas."""
        self.instructions = ""
        """The system prompt of the episode."""
        self.task = ""
        self.over, self.begun = True, False
        self._thoughts: int | None = None
        """Thoughts of a message at most; None where turns are messages of their own."""
        self._clear()

    def _clear(self) -> None:
        self.total, self.turns = 0.0, 0
        self.success: bool | None = None
        self.fault: str | None = None
        """What the environment raised: the episode is void, and its reward says nothing."""

    def begin(self, task: str | None = None, *, split: str | None = None, seed: int | None = None) -> str:
        """Begins an episode, of a drawn task where none is named; returns its prompt. Raises SettingsError."""
        options = {"task": task or None, "split": split} | ({"tools": True} if self._calls else {})
        text, info = self.env.reset(seed=seed, options=options)
        self.task, self.tools = info["task"], info.get("tools", [])
        self.instructions = info["instructions"] if self._calls else self.env.system_prompt()
        self._thoughts = info["thoughts"]["turns"] if "thoughts" in info else None
        self.over, self.begun = False, True
        self._clear()
        return text

    def call(self, name: str, arguments: Mapping[str, Any]) -> Turn:
        """Plays the turn of a call. Raises NotRunning, and whatever a broken environment raises."""
        return self.say(as_turn(self.tools, name, arguments))

    def say(self, text: str) -> Turn:
        """Plays a turn as the model writes it. Raises NotRunning, and whatever a broken environment raises."""
        if self.over:
            raise NotRunning("the episode is over" if self.begun else "no episode was begun")
        try:
            seen, reward, terminated, truncated, info = self.env.step(text)
        except Exception as error:
            self.over, self.fault = True, one_line(error)
            raise
        self.total, self.turns = self.total + reward, self.turns + 1
        self.over, self.success = terminated or truncated, info["success"]
        return Turn(seen, reward, self.over, truncated, self.success, info["invalid"])

    def message(self, text: str) -> Turn:
        """Plays a whole message of a model: one turn or, where turns are thought factors, all of them, after which the
        episode is over. Raises as `say` does."""
        if self._thoughts is None:
            return self.say(text)
        before = self.total
        for piece in thoughts_of(text, self._thoughts):
            turn = self.say(piece)
            if turn.over:
                break
        else:  # there is nothing left to go on with
            self.over, self.success = True, False
            turn = replace(turn, over=True, truncated=True, success=False)
        return replace(turn, reward=self.total - before)
