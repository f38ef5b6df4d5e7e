"""Settings of TextWorld."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges


class Name(StrEnum):
    """A kind of games."""

    COIN = "coin"
    """Find the coin at the end of a chain of rooms, past dead ends (tw-coin_collector)."""
    TREASURE = "treasure"
    """Find the thing that the objective names, and leave the other one alone (tw-treasure_hunter)."""
    QUEST = "quest"
    """A quest of any actions: doors, keys, chests, food (tw-make custom)."""


class Objective(StrEnum):
    """How much the objective tells."""

    GOAL = "goal"
    """The last action of the quest."""
    ROUTE = "route"
    """Every action of the quest, in its order."""


LEVELS = {Name.COIN: 20, Name.TREASURE: 15, Name.QUEST: 8}
"""The highest level of each kind: a larger game takes up to seconds to generate."""


@dataclass(frozen=True)
class TextWorldConfig:
    """Settings of TextWorld."""

    game: Name = Name.TREASURE
    """The kind of games."""
    level: int = 5
    """Size of the games. coin: rooms of the chain, each with a dead end; treasure: TextWorld's level, 1 to 10 in five
    rooms, 11 to 15 in ten with doors and chests; quest: actions of the quest."""
    objective: Objective = Objective.GOAL
    """How much the objective tells: the last action of the quest, or every action in order."""
    train_tasks: int = 5000
    """Training tasks, which are seeds."""
    held_out_tasks: int = 1000
    """Validation tasks, and the same number of test tasks."""
    max_turns: int = 20
    """Turns of an episode: to run out of them is a failure."""

    def __post_init__(self) -> None:
        tasks = dict.fromkeys(("train_tasks", "held_out_tasks"), (1, 10_000_000))
        check_ranges(self, SettingsError, "textworld: ", **tasks, max_turns=1)
        check_ranges(self, SettingsError, f"textworld: {self.game}: ", level=(1, LEVELS[self.game]))
