"""A house as a Gymnasium environment: it takes one of the commands that are possible."""

from collections.abc import Mapping
from typing import Any, Self

import gymnasium

from agent_envs.adapters.household.config import HouseholdConfig
from agent_envs.adapters.household.generate import generated
from agent_envs.adapters.household.goal import score
from agent_envs.adapters.household.house import House, State
from agent_envs.adapters.household.rules import possible


class HouseGame(gymnasium.Env[str, str]):
    """One house at a time. Use `reset` first.

    All that it holds are values that a step replaces and never changes, so that copies share them.
    """

    house: House
    state: State

    def __init__(self, config: HouseholdConfig) -> None:
        self.config = config
        self.commands: Mapping[str, State] = {}
        """What can be done now, and what it leads to."""

    @property
    def score(self) -> float:
        """Share of the goal's conditions that hold."""
        return score(self.house, self.state)

    @property
    def won(self) -> bool:
        return self.score == 1

    @property
    def begun(self) -> bool:
        """Whether a command was taken: nobody comes back to the middle of the room."""
        return self.state.at is not None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begins the errand of a seed."""
        assert seed is not None
        config = self.config
        self.house = generated(config.kinds, config.places, config.things, seed)
        self._stands(State(self.house.inside))
        return "", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one of the commands that are possible."""
        self._stands(self.commands[action])
        return "", float(self.won), self.won, False, {}

    def _stands(self, state: State) -> None:
        self.state = state
        self.commands = possible(self.house, state, idle=self.config.idle)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self)(self.config)
        vars(twin).update(vars(self))
        return twin
