"""Settings of the puzzle environment; every mistake in them is one line."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.puzzle.game24 import KING
from agent_envs.puzzle.protocol import LEVELS
from agent_envs.ranges import check_ranges, check_share


class PuzzleKind(StrEnum):
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

    kind: PuzzleKind = PuzzleKind.COUNTDOWN
    """The puzzle."""
    levels: tuple[int, ...] = ()
    """Difficulties to draw from, equally often: some of 1, 2 and 3; by default 1, and all for game24."""
    spare: int = 2
    """Turns beyond those of a shortest solution. With undo a mistake costs two: by default there is room for one."""
    undo: bool = True
    """Whether a move can be taken back, for a turn. Without it a wrong move can be fatal."""
    hints: bool = False
    """Show the legal moves."""
    numbers: int = 4
    """Countdown only: numbers at the start."""
    largest: int | None = None
    """Countdown: numbers are drawn from 1 to this (9). Game24: training numbers are drawn from 1 to this (13), because
    the quadruples of 1 to 13 are few enough to be memorised; validation and test stay at 1 to 13."""
    skill: float = 0.7
    """Skill of the oracle's agent: the chance that it makes a perfect turn; its other turns are wasted."""
    max_turns: int = 40
    """Largest number of turns; a `spare` that would allow more is refused."""
    train_tasks: int = 20000
    """Training puzzles; validation and test have 1000 others each. game24 has all there are, except in training with a
    `largest` above 13."""
    seed: int = 0
    """Seed of the puzzles."""

    @property
    def chosen_levels(self) -> tuple[int, ...]:
        """The levels, whether named or not."""
        return self.levels or (LEVELS if self.kind == PuzzleKind.GAME24 else LEVELS[:1])

    @property
    def learns_from_larger(self) -> bool:
        """Whether game24 learns from larger numbers than it is tested on."""
        return self.kind == PuzzleKind.GAME24 and self.largest is not None and self.largest > KING

    def __post_init__(self) -> None:
        if len(set(self.levels)) < len(self.levels) or not set(self.levels) <= set(LEVELS):
            raise SettingsError(f"puzzle: levels must be some of 1, 2 and 3, each once, not {self.levels}")
        if self.kind != PuzzleKind.COUNTDOWN and self.numbers != 4:
            raise SettingsError(f"puzzle: numbers only works with kind countdown, not with {self.kind}")
        if self.kind == PuzzleKind.GAME24 and not self.learns_from_larger and self.train_tasks != 20000:
            raise SettingsError(
                f"puzzle: train_tasks only works with kind game24 beside a largest above {KING}; "
                "else it has as many as there are"
            )
        check_ranges(self, SettingsError, "puzzle: ", numbers=(3, 6))
        if self.largest is not None:
            least = {PuzzleKind.COUNTDOWN: 6, PuzzleKind.GAME24: KING}.get(self.kind)
            if least is None:
                raise SettingsError(f"puzzle: largest only works with kinds countdown and game24, not with {self.kind}")
            if not least <= self.largest <= 100:
                raise SettingsError(f"puzzle: largest must lie in {least}..100 for {self.kind}, not {self.largest}")
        check_ranges(self, SettingsError, "puzzle: ", spare=0, train_tasks=(1, 10_000_000))
        check_share(self, SettingsError, "puzzle: ", "skill")
