"""Gymnasium environments of nobody in particular, and functions that the settings of `--env gym` name."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Count(gymnasium.Env[dict[str, Any], int]):
    """Count to a number.

    This second paragraph is for people.
    """

    def __init__(self, goal: int = 3, flag: bool = False, render_mode: str | None = None) -> None:
        self.goal, self.flag, self.at, self.render_mode = goal, flag, 0, render_mode
        self.observation_space = spaces.Dict(
            {"goal": spaces.Discrete(100), "at": spaces.Box(-9, 9, (2,), np.float32), "note": spaces.Text(20)}
        )
        self.action_space = spaces.Discrete(2)

    def _seen(self) -> dict[str, Any]:
        return {"goal": self.goal, "at": np.array([self.at, 0.5], np.float32), "note": "go on"}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.at += 2 * int(action) - 1
        over = self.at >= self.goal
        return self._seen(), -1.0, over, False, {"is_success": True} if over and self.flag else {}


class Handle(Count):
    """Cannot be copied."""

    def __deepcopy__(self, memo: object) -> "Handle":
        raise TypeError("cannot be copied")


class Restless(Handle):
    """Cannot be copied, and shows something else whenever it is played."""

    played = 0

    def _seen(self) -> dict[str, Any]:
        type(self).played += 1
        return super()._seen() | {"note": f"{type(self).played}"}


class Picture(Count):
    """Shows an image."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)


def forward(env: Count) -> int:
    return 1


def in_words(seen: dict[str, Any], env: Count) -> str:
    return f"you are at {env.at} of {seen['goal']}"


NOT_A_FUNCTION = 3
for made in (Count, Handle, Restless, Picture):
    gymnasium.register(f"turnwise_tests/{made.__name__}-v0", made, max_episode_steps=9)
