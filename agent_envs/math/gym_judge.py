"""What runs in the killable process of `agent_envs.outside`: the scorers of reasoning-gym's families.

Invariant: a task is made again from its family, seed and number; of what a model wrote there is only the answer. Some
of these scorers evaluate it. Never imported by what trains.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agent_envs.core import SettingsError

try:
    import reasoning_gym
except ImportError as error:
    raise SettingsError("the scorers of reasoning-gym are missing: pip install 'turnwise[reasoning-gym]'") from error


def score(family: str, seed: int, number: int, answer: str) -> float:
    """What the family's own scorer gives for the answer to its task of that seed and number."""
    data = _family(family, seed, number + 1)
    return float(data.score_answer(answer, data[number]))


@lru_cache(maxsize=64)
def _family(family: str, seed: int, size: int) -> Any:
    return reasoning_gym.create_dataset(family, seed=seed, size=size)
