"""BabyAI in text (extra `babyai`): an errand in rooms of which the agent sees what is before it.

The agent reads how far the way ahead is free and where each thing in sight lies, in cells ahead and to its side. What
it does not see it has to find. Success is BabyAI's own: its verifier watches every action. The expert is BabyAI's bot;
its flawed twin turns to the wrong side.
"""

import difflib
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agent_envs.actions import render
from agent_envs.adapters.adapted import AdaptedEnv, Game
from agent_envs.adapters.babyai.bot import advice
from agent_envs.adapters.babyai.config import BabyAIConfig
from agent_envs.adapters.babyai.view import view, wanted
from agent_envs.core import SettingsError

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
LEFT, RIGHT, DONE = 0, 1, 6
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
THINGS = ("door", "key", "ball", "box")
_NEVER = 10**9
"""Steps after which a level ends by itself."""


class BabyAIEnv(AdaptedEnv):
    """Run an errand of BabyAI: `ACT(forward)`. The reward is 1 when it is done."""

    name: ClassVar[str] = "babyai"
    Config: ClassVar[type[Any]] = BabyAIConfig
    config: BabyAIConfig

    @property
    def limited(self) -> bool:
        # An errand is never failed otherwise, and a critic values a cut episode by its last state.
        return True

    @property
    def named(self) -> str:
        return self.config.level

    def made(self) -> gymnasium.Env[Any, Any]:
        levels = _levels()
        if self.config.level not in levels:
            close = difflib.get_close_matches(self.config.level, levels, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise SettingsError(f"babyai: no level {self.config.level!r}{hint} (known: {', '.join(levels)})")
        return gymnasium.make(levels[self.config.level], disable_env_checker=True, max_steps=_NEVER)

    def shown(self, game: Game) -> str:
        return view(game.env.unwrapped)

    def action_names(self, env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        return ACTIONS

    def paid(self, reward: float, success: bool) -> float:
        return float(success)

    def instructions(self, language: str) -> str:
        return (
            "You run an errand in a building and see what lies before you. To go to a thing is to stand before it and "
            f"face it. An action is one of {', '.join(ACTIONS)}: left and right turn you, toggle opens."
        )

    def lexicon(self) -> Sequence[str]:
        return (
            *ACTIONS,
            *COLOURS,
            *THINGS,
            "ahead",
            "left",
            "right",
            "free",
            "wall",
            "errand",
            "locked",
            "closed",
            "open",
        )

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        """The bot's action, after the line of the thing that is looked for; flawed, it turns to the other side."""
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        game: Game = self._state
        action = advice(game, self.made)
        action = DONE if action is None else action
        if action in (LEFT, RIGHT) and rng is not None and rng.random() < flaw:
            action = LEFT + RIGHT - action
        return render("ACT", ACTIONS[action], wanted(game.env.unwrapped) or "not in sight")


def _levels() -> dict[str, str]:
    """Names of the levels, with their ids. Raises SettingsError where the package is missing."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import minigrid  # noqa: F401 (it registers them)
        from minigrid.envs.babyai.core import roomgrid_level
    except ImportError as error:
        raise SettingsError(f"babyai: {error}: pip install 'turnwise[babyai]'") from error
    roomgrid_level.print = lambda *args: None  # rejected rooms are reported on the standard output
    ids = sorted(one for one in gymnasium.registry if one.startswith("BabyAI-") and one.endswith("-v0"))
    return {one.removeprefix("BabyAI-").removesuffix("-v0"): one for one in ids}
