"""The systematic mistake of the flawed demonstrator."""

import numpy as np

from agent_envs.adapters.textworld_express.expert import LOOK
from agent_envs.adapters.textworld_express.game import Played
from agent_envs.adapters.textworld_express.view import useful


def mistaken(action: str, now: Played, rng: np.random.Generator) -> str:
    """What the flawed demonstrator does instead of an action.

    It walks past what it should take, or only looks at it where there is no way out. Simon it obeys a turn late.
    """
    if not now.reply.look:
        return now.steps[-1].action if now.steps else action
    if not action.startswith("take "):
        return action
    ways = [one for one in useful(now.reply) if one.startswith("move ")]
    return ways[int(rng.integers(len(ways)))] if ways else LOOK
