"""TextWorld in text (extra `textworld`): games that are generated from a seed, played in memory.

The agent reads the objective, the room, what it carries and what can be done. An action is one of these commands;
anything else is refused before the game sees it. Success and failure are the game's own verdict. The expert follows
TextWorld's winning policy, which is tracked from every state; its flawed twin walks past what it should take or use.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium

from agent_envs.adapters.adapted import Game
from agent_envs.adapters.listed import ListedEnv
from agent_envs.adapters.textworld.config import TextWorldConfig
from agent_envs.adapters.textworld.game import TextGame

WORDS = ("go", "north", "south", "east", "west", "take", "drop", "open", "unlock", "coin", "carrying", "from", "floor")


class TextWorldEnv(ListedEnv):
    """Play a game of TextWorld: `ACT(go north)`. The reward is 1 when it is won."""

    name: ClassVar[str] = "textworld"
    Config: ClassVar[type[Any]] = TextWorldConfig
    config: TextWorldConfig

    @property
    def named(self) -> str:
        return f"{self.config.game}{self.config.level}"

    def made(self) -> gymnasium.Env[Any, Any]:
        return TextGame(self.config.game, self.config.level, self.config.objective)

    def shown(self, game: Game) -> str:
        now = text_game(game)
        task = [] if now.begun else [now.objective]
        held = [f"carrying: {', '.join(now.place.carried)}"] if now.place.carried else []
        return "\n".join([*task, now.place.room, *held, *now.place.commands])

    def action_names(self, env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
        assert isinstance(env, TextGame)
        return env.place.commands

    def succeeded(self, game: Game, info: dict[str, Any]) -> bool:
        return text_game(game).won

    def score(self, game: Game) -> float:
        return text_game(game).score

    def lexicon(self) -> Sequence[str]:
        return WORDS

    def advised(self) -> str:
        """The next command of the winning policy."""
        now = text_game(self._state)
        return (now.policy or now.place.commands)[0]


def text_game(game: Game) -> TextGame:
    """The game of an episode."""
    assert isinstance(game.env, TextGame)
    return game.env
