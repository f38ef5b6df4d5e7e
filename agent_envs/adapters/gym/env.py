"""An environment that is registered with Gymnasium, played in text.

The agent sees the environment's picture in text where it draws one, else its observation, and names an action. A task
is the seed of a reset: where the start does not depend on it, all tasks begin alike, those of the test split too.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from agent_envs.actions import render
from agent_envs.adapters.adapted import AdaptedEnv, Game
from agent_envs.adapters.gym.config import GymConfig, GymReward, GymView
from agent_envs.adapters.spaces import check_actions, check_readable, form_of, text_of
from agent_envs.core import SettingsError

_MARKED = re.compile(r"\x1b\[[0-9;]*m(.)\x1b\[0m", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class GymEnv(AdaptedEnv):
    """Play an environment of Gymnasium: `ACT(action)`. The rewards are its own."""

    name: ClassVar[str] = "gym"
    Config: ClassVar[type[Any]] = GymConfig
    config: GymConfig

    @property
    def named(self) -> str:
        return self.config.id

    @property
    def limited(self) -> bool:
        return self.config.limited

    def made(self) -> gymnasium.Env[Any, Any]:
        made = self._opened("ansi" if self._drawn else None)
        check_actions(made.action_space, self.config.id)
        if not self.config.describe and made.render_mode != "ansi":
            check_readable(made.observation_space, self.config.id)
        return made

    def _opened(self, mode: str | None) -> gymnasium.Env[Any, Any]:
        how = self.config.keywords if mode is None else {**self.config.keywords, "render_mode": mode}
        try:
            return gymnasium.make(self.config.id, disable_env_checker=True, **how)
        except Exception as error:  # another package's constructor may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise SettingsError(f"gym: {self.config.id} cannot be made: {reason:.300}") from error

    @cached_property
    def _drawn(self) -> bool:
        """Whether the environment's picture in text is shown."""
        if self.config.describe or self.config.view == GymView.OBSERVATION:
            return False
        env = self._opened(None)
        drawn = "ansi" in env.metadata.get("render_modes", ())
        env.close()
        if self.config.view == GymView.ANSI and not drawn:
            raise SettingsError(f"gym: {self.config.id} draws no picture in text: leave out --gym.view ansi")
        return drawn

    def shown(self, game: Game) -> str:
        env = game.env
        if self.config.describe:
            return str(_named(self.config.describe)(game.seen, env.unwrapped))
        if env.render_mode == "ansi":
            return _COLOUR.sub("", _MARKED.sub(r"[\1]", str(env.render()))).strip("\n")
        return text_of(env.observation_space, game.seen)

    def action_names(self, env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        space = env.action_space
        assert isinstance(space, spaces.Discrete)
        given, own = self.config.actions, getattr(env.unwrapped, "actions", None)
        if given and len(given) != int(space.n):
            raise SettingsError(f"gym: {self.config.id} has {space.n} actions, and --gym.actions names {len(given)}")
        if given:
            return given
        if isinstance(own, type) and issubclass(own, Enum) and len(own) == int(space.n):
            return tuple(one.name.lower() for one in own)
        return tuple(str(int(space.start) + i) for i in range(int(space.n)))

    def instructions(self, language: str) -> str:
        return self._says

    @cached_property
    def _says(self) -> str:
        env = self.made()
        goal = self.config.goal or _first_paragraph(env.unwrapped) or f"Play {self.config.id}."
        discrete = isinstance(env.action_space, spaces.Discrete)
        actions = f"one of {', '.join(self.action_names(env))}" if discrete else form_of(env.action_space)
        env.close()
        return f"{goal}\nAn action is {actions}."

    def succeeded(self, game: Game, info: dict[str, Any]) -> bool:
        for key in ("is_success", "success"):
            if key in info:
                return bool(info[key])
        least, spec = self.config.success, game.env.spec
        if least is None and spec is not None:
            least = spec.reward_threshold
        return game.total > 0 if least is None else game.total >= least

    def paid(self, reward: float, success: bool) -> float:
        return float(success) if self.config.outcome == GymReward.SUCCESS else reward

    @property
    def has_expert(self) -> bool:
        return bool(self.config.expert)

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        """The action that the function of the settings names; flawed, any action."""
        if not self.config.expert:
            raise SettingsError("gym has no scripted expert: name a function with --gym.expert")
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        game: Game = self._state
        space = game.env.action_space
        if not isinstance(space, spaces.Discrete):
            raise SettingsError(f"gym: the expert names discrete actions, and {self.config.id} has others")
        names = self.action_names(game.env)
        if rng is not None and rng.random() < flaw:
            return render("ACT", names[int(rng.integers(len(names)))])
        return render("ACT", names[int(_named(self.config.expert)(game.env.unwrapped)) - int(space.start)])


def _first_paragraph(env: object) -> str:
    """The first paragraph of a class's own docstring, in one line."""
    text = inspect.cleandoc(type(env).__doc__ or "")
    paragraphs = [part for part in text.split("\n\n") if part.strip() and not part.lstrip().startswith(("#", "*", "|"))]
    return " ".join(paragraphs[0].split())[:600] if paragraphs else ""


def _named(place: str) -> Callable[..., Any]:
    """The function that module:function names. Raises SettingsError."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # a module of somebody may raise anything
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise SettingsError(f"gym: there is no {place} ({why:.300}): name a function as module:function") from None
    if not callable(found):
        raise SettingsError(f"gym: {place} is no function")
    return found
