"""TextWorld in text (extra `textworld`): games that are generated from a seed, played in memory.

The agent reads the objective, the room, what it carries and what can be done. An action is one of these commands;
anything else is refused before the game sees it. Success and failure are the game's own verdict. The expert follows
TextWorld's winning policy, which is tracked from every state; its flawed twin walks past what it should take or use.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agent_envs.actions import render
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

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        """The next command of the winning policy; flawed, another one where it should do more than walk."""
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        now = text_game(self._state)
        command = (now.policy or now.place.commands)[0]
        if rng is not None and rng.random() < flaw:
            command = mistaken(command, now.place.commands, rng)
        return render("ACT", command)


def mistaken(command: str, commands: Sequence[str], rng: np.random.Generator) -> str:
    """What the flawed demonstrator does instead: it walks past what it should take or use.

    Where there is no way out it does something else there.
    """
    if command.startswith("go "):
        return command
    others = [one for one in commands if one.startswith("go ")] or [one for one in commands if one != command]
    return others[int(rng.integers(len(others)))] if others else command


def text_game(game: Game) -> TextGame:
    """The game of an episode."""
    assert isinstance(game.env, TextGame)
    return game.env
