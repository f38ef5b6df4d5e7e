"""BabyAI's own bot as the expert. It plans for one episode and follows what was done in it, turn by turn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

from agent_envs.adapters.adapted import Game, begin, take


@dataclass
class Advisor:
    """The bot of an episode."""

    bot: Any
    told: int
    """How many of the actions it knows of."""
    advice: int


def advice(game: Game, made: Callable[[], gymnasium.Env[Any, Any]]) -> int | None:
    """The bot's next action; None where it is at a loss, as after a box was opened that it must not open."""
    try:
        advisor: Advisor | None = game.advisor
        if advisor is None or advisor.told + 1 < len(game.actions):
            advisor = _caught_up(game, made)
        elif advisor.told < len(game.actions):
            advisor = Advisor(advisor.bot, advisor.told + 1, int(advisor.bot.replan(game.actions[-1])))
    except Exception:  # it asserts what it expects
        return None
    game.advisor = advisor
    return advisor.advice


def _caught_up(game: Game, made: Callable[[], gymnasium.Env[Any, Any]]) -> Advisor:
    """A new bot that saw the whole episode: it is played again, and goes on in that copy."""
    from minigrid.utils.baby_ai_bot import BabyAIBot

    again = begin(made, game.seed)
    bot = BabyAIBot(again.env)
    found = bot.replan(None)
    for action in game.actions:
        take(again, action)
        found = bot.replan(action)
    game.env, game.seen = again.env, again.seen
    return Advisor(bot, len(game.actions), int(found))
