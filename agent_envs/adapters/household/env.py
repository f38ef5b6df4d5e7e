"""Household tasks in text: ALFWorld's rules, generated houses. They are not ALFWorld's games.

The agent reads its errand, what is at the place where it is, what it carries and what can be done. An action is one of
these commands; anything else is refused. The expert searches, or knows the house and takes a shortest way; its
flawed twin walks past what it should open, take, put or use.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium

from agent_envs.actions import Action
from agent_envs.adapters.adapted import Game
from agent_envs.adapters.household.catalogue import FITS, ROOMS
from agent_envs.adapters.household.config import HouseholdConfig
from agent_envs.adapters.household.expert import advice
from agent_envs.adapters.household.game import HouseGame
from agent_envs.adapters.household.view import view
from agent_envs.adapters.listed import ListedEnv
from agent_envs.core import Outcome


class HouseholdEnv(ListedEnv):
    """Do an errand in a house: `ACT(go to fridge 1)`. The reward is 1 when it is done."""

    name: ClassVar[str] = "household"
    Config: ClassVar[type[Any]] = HouseholdConfig
    config: HouseholdConfig

    def made(self) -> gymnasium.Env[Any, Any]:
        return HouseGame(self.config)

    def shown(self, game: Game) -> str:
        now = house_game(game)
        return "\n".join([*view(now.house, now.state, begun=now.begun), *now.commands])

    def action_names(self, env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        assert isinstance(env, HouseGame)
        return tuple(env.commands)

    def _act(self, action: Action) -> Outcome:
        return super()._act(replace(action, args=reworded(action.args)))

    def succeeded(self, game: Game, info: dict[str, Any]) -> bool:
        return house_game(game).won

    def score(self, game: Game) -> float:
        return house_game(game).score

    def lexicon(self) -> Sequence[str]:
        return sorted({*FITS, *(thing for _, stock in ROOMS.values() for thing in stock)})

    def advised(self) -> str:
        now = house_game(self._state)
        return advice(now.house, now.state, self.config.expert)


def reworded(command: str) -> str:
    """A command in the words of ALFWorld 0.4; older ones wrote `put apple 1 in/on fridge 1`."""
    verb, _, rest = " ".join(command.casefold().split()).partition(" ")
    thing, middle, place = rest.partition(" in/on ")
    return f"move {thing} to {place}" if verb == "put" and middle else command


def house_game(game: Game) -> HouseGame:
    """The house of an episode."""
    assert isinstance(game.env, HouseGame)
    return game.env
