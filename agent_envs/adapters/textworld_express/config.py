"""Settings of TextWorld-Express."""

import re
from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges

BLOCK = 10_000
"""Seeds of a split: the package's train fold begins at 0, dev at 10,000 and test at 20,000."""
_PARAMS = re.compile(r"(\w+=\d{1,9}(,\w+=\d{1,9})*)?")


class Name(StrEnum):
    """A game, by its name there."""

    ARITHMETIC = "arithmetic"
    COIN = "coin"
    COOKINGWORLD = "cookingworld"
    MAPREADER = "mapreader"
    PECKINGORDER = "peckingorder"
    SIMONSAYS = "simonsays"
    SORTING = "sorting"
    TWC = "twc"


class GameView(StrEnum):
    """What the agent sees."""

    GAME = "game"
    """The game's text."""
    FULL = "full"
    """The game's text, the inventory, and the actions that are possible."""
    SHORT = "short"
    """What an action led to, the room, and the actions that matter there."""


class GameOutcome(StrEnum):
    """What is paid."""

    SUCCESS = "success"
    """1 for a success at the end."""
    SCORE = "score"
    """What the game's score, which is 1 for a success, rose or fell by."""


@dataclass(frozen=True)
class TextWorldExpressConfig:
    """Settings of TextWorld-Express."""

    game: Name = Name.COIN
    """The game."""
    params: str = ""
    """The game's own parameters, as name=number,name=number; those that are left out have the game's defaults."""
    view: GameView = GameView.SHORT
    """What the agent sees: the game's text; with the inventory and the possible actions (full); or the room and the
    actions that matter (short)."""
    outcome: GameOutcome = GameOutcome.SUCCESS
    """What is paid: 1 for a success at the end, or the change of the game's score."""
    train_tasks: int = 5000
    """Training tasks, which are seeds; the first 1,000 are the package's own."""
    held_out_tasks: int = 1000
    """Validation tasks, of the package's dev fold, and the same number of test tasks."""
    max_turns: int = 50
    """Turns of an episode: to run out of them is a failure."""

    def __post_init__(self) -> None:
        tasks = dict.fromkeys(("train_tasks", "held_out_tasks"), (1, BLOCK))
        check_ranges(self, SettingsError, "textworld_express: ", **tasks, max_turns=1)
        if not _PARAMS.fullmatch(self.params):
            raise SettingsError(f"textworld_express: params must be name=number,name=number, not {self.params!r:.100}")
