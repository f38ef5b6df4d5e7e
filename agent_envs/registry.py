"""Environments by name. Each is imported when it is first used, so that `import agent_envs` stays cheap.

Outside packages add an environment through the entry-point group ``turnwise.envs``: ``name = "module:Class"``.
"""

import difflib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from enum import StrEnum
from typing import Any

import gymnasium

from agent_envs.core import BackendUnavailable, SettingsError, TextEnv
from agent_envs.plugins import Registry, check_defaults, check_settings

GROUP = "turnwise.envs"

ENVS: dict[str, str] = {
    "babyai": "agent_envs.adapters.babyai.env:BabyAIEnv",
    "code": "agent_envs.code.env:CodeEnv",
    "corridor": "agent_envs.corridor.env:CorridorEnv",
    "gym": "agent_envs.adapters.gym.env:GymEnv",
    "household": "agent_envs.adapters.household.env:HouseholdEnv",
    "identity": "agent_envs.identity.env:IdentityEnv",
    "math": "agent_envs.math.env:MathEnv",
    "puzzle": "agent_envs.puzzle.env:PuzzleEnv",
    "reasoning_gym": "agent_envs.reasoning_gym.env:ReasoningGymEnv",
    "research": "agent_envs.research.env:ResearchEnv",
    "tau2": "agent_envs.adapters.tau2.env:Tau2Env",
    "textworld": "agent_envs.adapters.textworld.env:TextWorldEnv",
    "textworld_express": "agent_envs.adapters.textworld_express.env:TextWorldExpressEnv",
    "wiki": "agent_envs.wiki.env:WikiEnv",
    "wiki_python": "agent_envs.wiki.python:WikiPythonEnv",
}


def _check(found: Any, who: str) -> None:
    """Raises ValueError unless ``found`` is an environment."""
    if not (isinstance(found, type) and issubclass(found, TextEnv)):
        raise ValueError(f"{who} is not a subclass of agent_envs.TextEnv")
    config: Any = getattr(found, "Config", None)
    check_settings(config, who)
    check_defaults(config, who)
    if lacks := [name for name in ("name", "grammar") if not hasattr(found, name)]:
        raise ValueError(f"{who} has no {lacks[0]}")
    if "max_turns" not in {setting.name for setting in fields(config)}:
        raise ValueError(f"{who} has no setting max_turns: every environment needs one")


REGISTRY: Registry[type[TextEnv]] = Registry("environment", GROUP, ENVS, _check, SettingsError)


def names() -> list[str]:
    """All known environments, those of outside packages included."""
    return REGISTRY.names()


def env_class(name: str) -> type[TextEnv]:
    """The class of an environment. Raises `SettingsError` when it is unknown, broken, or its name is taken."""
    return REGISTRY.get(name)


def make(name: str, config: Any = None) -> TextEnv:
    """An environment with the given settings (an instance of its `Config`), or with its defaults."""
    made = env_class(name)
    try:
        return made(config)
    except (SettingsError, BackendUnavailable):
        raise
    except Exception as error:  # another package's constructor may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingsError(f"the environment {name} cannot be made: {reason}") from error


def make_all(configs: Mapping[str, Any]) -> dict[str, TextEnv]:
    """An environment for each name, with its settings."""
    return {name: make(name, config) for name, config in configs.items()}


def from_settings(env: str, **settings: Any) -> TextEnv:
    """The entry point behind `gymnasium.make`: keyword arguments are fields of the environment's `Config`."""
    made = env_class(env)
    render_mode = settings.pop("render_mode", None)
    if render_mode not in (None, *made.metadata["render_modes"]):
        raise SettingsError(f"{env}: render_mode must be one of {', '.join(made.metadata['render_modes'])}")
    known = {field.name: field.default for field in fields(made.Config)}
    for key, value in settings.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"{env}: unknown setting {key!r}{hint} (known: {', '.join(known)})")
        default: Any = known[key]
        if isinstance(default, StrEnum):
            choices = {choice.value: choice for choice in type(default)}
            if value not in choices:
                raise SettingsError(f"{env}: {key} must be one of {', '.join(choices)}, not {value!r}")
            settings[key] = choices[value]
        elif isinstance(default, tuple) and isinstance(value, list):
            settings[key] = tuple(value)
    result = made(made.Config(**settings))
    result.render_mode = render_mode
    return result


def gym_id(name: str) -> str:
    """The Gymnasium id of an environment: ``wiki`` → ``agent_envs/Wiki-v0``."""
    return f"agent_envs/{name.title().replace('_', '')}-v0"


def register() -> None:
    """Make every environment, those of outside packages included, known to `gymnasium.make`."""
    for name in names():
        if gym_id(name) not in gymnasium.registry:
            with suppress(gymnasium.error.Error):  # a name that Gymnasium does not take
                gymnasium.register(gym_id(name), entry_point="agent_envs.registry:from_settings", kwargs={"env": name})
