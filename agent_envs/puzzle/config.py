"""Settings of the puzzle environment; every mistake in them is one line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.puzzle.protocol import LEVELS


class Kind(StrEnum):
    """Which puzzle it is."""

    GAME24 = "game24"
    COUNTDOWN = "countdown"
    SUDOKU4 = "sudoku4"
    QUEENS = "queens"
    BLOCKS = "blocks"
    SOKOBAN = "sokoban"


@dataclass(frozen=True)
class PuzzleConfig:
    """Settings of the puzzles."""

    kind: Kind = Kind.COUNTDOWN
    """Which puzzle."""
    levels: tuple[int, ...] = ()
    """Difficulties to draw from, equally often: some of 1, 2 and 3. When none is named it is 1, and all for game24."""
    spare: int = 2
    """Turns beyond those of a shortest solution. With undo a mistake costs two: by default there is room for one."""
    undo: bool = True
    """Whether a move can be taken back, for a turn. Without it a wrong move can be fatal."""
    hints: bool = False
    """Show the legal moves."""
    numbers: int = 4
    """Countdown only: numbers at the start."""
    largest: int = 9
    """Countdown only: they are drawn from 1 to this."""
    other_targets: bool = False
    """Game24 only: learn from quadruples that lead to any number from 1 to 48; those of 24 are too few for some models.
    Validated and tested is on 24 all the same."""
    skill: float = 0.7
    """Chance that the agent of whom the oracle speaks makes a perfect turn; its other turns are wasted."""
    max_turns: int = 40
    """Turns after which an episode is cut. That is for who makes no move at all: whoever does runs out of the turns
    of the puzzle before."""
    train_tasks: int = 20000
    """Puzzles to learn from, and 1000 others each to validate and to test; game24 has as many as there are,
    but for training with other_targets."""
    seed: int = 0
    """Another number draws other puzzles."""

    @property
    def chosen_levels(self) -> tuple[int, ...]:
        """The levels, whether named or not."""
        return self.levels or (LEVELS if self.kind == Kind.GAME24 else LEVELS[:1])

    def __post_init__(self) -> None:
        if len(set(self.levels)) < len(self.levels) or not set(self.levels) <= set(LEVELS):
            raise SettingsError(f"puzzle: levels must be some of 1, 2 and 3, each once, not {self.levels}")
        if self.kind != Kind.COUNTDOWN and (self.numbers, self.largest) != (4, 9):
            raise SettingsError(f"puzzle: numbers and largest act with kind countdown only, not with {self.kind}")
        if self.other_targets and self.kind != Kind.GAME24:
            raise SettingsError(f"puzzle: other_targets acts with kind game24 only, not with {self.kind}")
        if self.kind == Kind.GAME24 and not self.other_targets and self.train_tasks != 20000:
            raise SettingsError(
                "puzzle: train_tasks acts with kind game24 only beside other_targets; else it has as many as there are"
            )
        if not 3 <= self.numbers <= 6 or not 6 <= self.largest <= 100:
            raise SettingsError(
                f"puzzle: numbers must lie in 3..6 and largest in 6..100, not {self.numbers} and {self.largest}"
            )
        if self.spare < 0 or not 0 < self.skill < 1 or self.train_tasks < 1:
            raise SettingsError(
                "puzzle: spare must not be negative, skill must lie between 0 and 1, train_tasks be at least 1, "
                f"not {self.spare}, {self.skill} and {self.train_tasks}"
            )
