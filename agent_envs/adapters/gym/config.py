"""Settings of an environment that is registered with Gymnasium."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges


class GymView(StrEnum):
    """What the agent sees."""

    AUTO = "auto"
    """The environment's own picture in text, where it has one; else the observation."""
    ANSI = "ansi"
    OBSERVATION = "observation"


class GymReward(StrEnum):
    """What is paid."""

    OWN = "own"
    SUCCESS = "success"


@dataclass(frozen=True)
class GymConfig:
    """Settings of an environment that is registered with Gymnasium."""

    id: str = "FrozenLake-v1"
    """Its id, as gymnasium.make takes it: module:Name-v0 imports the module that registers it."""
    options: str = "{}"
    """Keyword arguments for gymnasium.make, a JSON object."""
    view: GymView = GymView.AUTO
    """What the agent sees: the environment's picture in text (ansi) or its observation; auto is the picture, where
    there is one."""
    describe: str = ""
    """module:function that writes what the agent sees, from the observation and the environment."""
    actions: tuple[str, ...] = ()
    """Names of the actions 0, 1, ...; by default the environment's own names, or the numbers."""
    goal: str = ""
    """What the agent is to do, in a sentence or two; by default the first paragraph of the environment's docstring."""
    success: float | None = None
    """Return from which an episode is a success, where the environment's info has neither is_success nor success; by
    default the environment's reward threshold, or anything above 0."""
    outcome: GymReward = GymReward.OWN
    """What is paid: the environment's own rewards, or 1 for a success at the end."""
    expert: str = ""
    """module:function that names the next action from the environment; behaviour cloning needs one."""
    train_tasks: int = 2000
    """Training tasks, which are seeds."""
    held_out_tasks: int = 500
    """Validation tasks, and the same number of test tasks."""
    max_turns: int = 50
    """Turns after which an episode is truncated."""
    limited: bool = False
    """The turns are part of the task: to run out of them is a failure, and no cut."""

    def __post_init__(self) -> None:
        tasks = dict.fromkeys(("train_tasks", "held_out_tasks"), (1, 10_000_000))
        check_ranges(self, SettingsError, "gym: ", **tasks)
        if len({name.casefold() for name in self.actions}) < len(self.actions) or not all(self.actions):
            raise SettingsError("gym: two actions have the same name, or one has none")
        if self.describe and self.view != GymView.AUTO:
            raise SettingsError("gym: view has no effect with describe, which writes what the agent sees: leave it out")
        _ = self.keywords

    @property
    def keywords(self) -> dict[str, Any]:
        """Keyword arguments for gymnasium.make. Raises SettingsError."""
        try:
            found = json.loads(self.options)
        except ValueError as error:
            raise SettingsError(f"gym: options is no JSON object ({error}): try '{{\"size\": 8}}'") from None
        if not isinstance(found, dict):
            raise SettingsError(f"gym: options must be a JSON object, not {self.options}")
        return found
