"""Tasks of the corridor: the signs of its doors, each corridor in one split; and the handle that each sign means."""

from functools import lru_cache, partial
from itertools import permutations
from random import Random

from agent_envs.core import Task, TaskSet, check_split, number_after
from agent_envs.corridor.config import WORDS, CorridorConfig
from agent_envs.splits import hashed_split

Signs = tuple[str, ...]
"""The sign of each door of a corridor; "" where there is none."""


def tasks_of(config: CorridorConfig, split: str) -> TaskSet:
    """The tasks of a split."""
    check_split("corridor", split)

    def build(index: int) -> Task:
        signs = _corridor(config, split, index)
        return Task(f"corridor-{split}-{index}", split, show(config, signs, 0, config.pulls), data=signs)

    size = config.train_tasks if split == "train" else 1000
    return TaskSet(size, build, partial(number_after, f"corridor-{split}-"))


def show(config: CorridorConfig, signs: Signs, door: int, left: int) -> str:
    """What the agent reads before a door."""
    sign = f"sign: {signs[door]}" if signs[door] else "no sign"
    return f"{sign}, door {door + 1} of {config.doors}, {left} pulls left"


@lru_cache(maxsize=64)
def handles_of(config: CorridorConfig) -> dict[str, tuple[str, str]]:
    """Sign → (the handle that it belongs to, the one that the flawed demonstrator takes it for)."""
    rng = Random(f"corridor-{config.world}")
    pairs = list(permutations(config.handles, 2))
    return {sign: rng.choice(pairs) for sign in WORDS[: config.signs]}


def _corridor(config: CorridorConfig, split: str, index: int) -> Signs:
    """The signs of one task. A corridor is in one split only: its own hash decides in which, three to train in five."""
    rng = Random(f"corridor-{config.world}-{split}-{index}")
    while True:
        signs = tuple(
            "" if rng.random() < config.blank else WORDS[rng.randrange(config.signs)] for _ in range(config.doors)
        )
        if split == hashed_split("|".join(signs)):
            return signs
