"""The puzzles by the name of their kind."""

from functools import lru_cache
from typing import Any

from agent_envs.puzzle.blocks import BlocksWorld
from agent_envs.puzzle.config import PuzzleConfig, PuzzleKind
from agent_envs.puzzle.countdown import Countdown
from agent_envs.puzzle.game24 import Game24
from agent_envs.puzzle.protocol import Puzzle
from agent_envs.puzzle.queens import NQueens
from agent_envs.puzzle.sokoban import Sokoban
from agent_envs.puzzle.sudoku4 import Sudoku4


@lru_cache(maxsize=64)
def puzzle_of(config: PuzzleConfig) -> Puzzle[Any]:
    """The rules that the settings name."""
    match config.kind:
        case PuzzleKind.GAME24:
            return Game24() if config.largest is None else Game24(config.largest)
        case PuzzleKind.COUNTDOWN:
            return Countdown(config.numbers) if config.largest is None else Countdown(config.numbers, config.largest)
        case PuzzleKind.SUDOKU4:
            return Sudoku4()
        case PuzzleKind.QUEENS:
            return NQueens()
        case PuzzleKind.BLOCKS:
            return BlocksWorld()
        case PuzzleKind.SOKOBAN:
            return Sokoban()
