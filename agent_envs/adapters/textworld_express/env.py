"""TextWorld-Express in text (extra `textworld-express`): eight games in houses and with riddles, played by Java.

An action is one of those that the game lists; anything else is refused before the game sees it. Success is the game's
own verdict, and so is failure, which ends the episode. The expert follows a plan for the seed and finds back to it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agent_envs.adapters.adapted import Game
from agent_envs.adapters.listed import ListedEnv
from agent_envs.adapters.textworld_express.config import BLOCK, GameOutcome, TextWorldExpressConfig
from agent_envs.adapters.textworld_express.expert import next_action
from agent_envs.adapters.textworld_express.game import Played, TextGame
from agent_envs.adapters.textworld_express.mistakes import mistaken
from agent_envs.adapters.textworld_express.plan import plan_of
from agent_envs.adapters.textworld_express.view import DIRECTIONS, shown, useful


class TextWorldExpressEnv(ListedEnv):
    """Play a game of TextWorld-Express: `ACT(open door to north)`. The reward is 1 when it is won."""

    name: ClassVar[str] = "textworld_express"
    Config: ClassVar[type[Any]] = TextWorldExpressConfig
    block: ClassVar[int] = BLOCK
    config: TextWorldExpressConfig

    @property
    def named(self) -> str:
        return str(self.config.game)

    def made(self) -> gymnasium.Env[Any, Any]:
        return TextGame(self.config.game, self.config.params)

    def shown(self, game: Game) -> str:
        return shown(played(game), self.config.view)

    def action_names(self, env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        assert isinstance(env, TextGame)
        return env.played.reply.valid

    def succeeded(self, game: Game, info: dict[str, Any]) -> bool:
        return played(game).reply.success

    def paid(self, reward: float, success: bool) -> float:
        return float(success) if self.config.outcome == GameOutcome.SUCCESS else reward

    def _copy_state(self, state: Game | None) -> Game | None:
        return state and self.replayed(state)

    def offered(self, game: Game) -> Sequence[str]:
        return useful(played(game).reply)

    def score(self, game: Game) -> float:
        return played(game).reply.score

    def lexicon(self) -> Sequence[str]:
        return ("move", "open door to", "take", "put", "coin", "room", *DIRECTIONS)

    def advised(self) -> str:
        """The next action of the plan, or back to it."""
        now = played(self._state)
        return next_action(self._plan(now.seed), now.steps, now.reply.valid)

    def misled(self, command: str, rng: np.random.Generator) -> str:
        """Another action where it should take a thing."""
        return mistaken(command, played(self._state), rng)

    def _plan(self, seed: int) -> tuple[str, ...]:
        if seed not in self._plans:
            game = TextGame(self.config.game, self.config.params)
            self._plans[seed] = plan_of(game, seed)
            game.close()
        return self._plans[seed]

    @cached_property
    def _plans(self) -> dict[int, tuple[str, ...]]:
        return {}


def played(game: Game) -> Played:
    """Where the game of an episode stands."""
    assert isinstance(game.env, TextGame)
    return game.env.played
