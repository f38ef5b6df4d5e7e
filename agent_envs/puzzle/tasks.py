"""Tasks: puzzles drawn from a seed, each in one split only.

Invariant: a puzzle's own key decides in which split it is, four in seven for training, so that no puzzle of one split
is, by another name or seen in a mirror, a puzzle of another.
"""

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from agent_envs.core import SettingsError, Task, TaskSet, check_split, number_after
from agent_envs.puzzle.config import PuzzleConfig
from agent_envs.puzzle.puzzles import puzzle_of
from agent_envs.splits import MORE_TESTS, hashed_split

_HELD_OUT = 1000
"""Shares of the splits: of the quadruples of game24, more than 300 are for testing."""


@dataclass(frozen=True)
class Problem:
    """A task's payload."""

    board: Any
    """Where it starts."""
    best: int
    """Moves of a shortest solution."""
    turns: int
    """Turns within which it must be solved."""


def tasks_of(config: PuzzleConfig, split: str) -> TaskSet:
    """The tasks of a split."""
    check_split("puzzle", split)
    name = f"{config.kind}-{split}"
    puzzle = puzzle_of(config)
    named = _named(config, split)

    def build(index: int) -> Task:
        level, board = _drawn(config, split, index) if named is None else named[index]
        best = puzzle.distance(board)
        assert best is not None
        turns = best + config.spare
        prompt = "\n".join(filter(None, [puzzle.picture(board), show(config, board, turns)]))
        return Task(f"{name}-{index}", split, prompt, level=level, data=Problem(board, best, turns))

    size = config.train_tasks if split == "train" else _HELD_OUT
    return TaskSet(size if named is None else len(named), build, lambda task_id: number_after(f"{name}-", task_id))


def check_turns(config: PuzzleConfig) -> None:
    """Raises SettingsError when an episode could be cut before the turns of its puzzle are used up."""
    needed = puzzle_of(config).longest + config.spare
    if config.max_turns < needed:
        raise SettingsError(f"puzzle: max_turns must be at least {needed} for {config.kind} with spare {config.spare}")


def show(config: PuzzleConfig, board: Any, left: int) -> str:
    """A board as the agent sees it, with the turns that are left."""
    puzzle = puzzle_of(config)
    hint = f", moves: {' '.join(puzzle.moves(board))}" if config.hints else ""
    return f"{puzzle.show(board)}{hint}, {left} {'turn' if left == 1 else 'turns'} left"


def split_of(key: str) -> str:
    """The split of the puzzle that has this key."""
    return hashed_split(key, MORE_TESTS)


@lru_cache(maxsize=16)
def _named(config: PuzzleConfig, split: str) -> tuple[tuple[int, Any], ...] | None:
    """(level, board) of every puzzle of a split, in an order drawn from the seed; None where they are drawn."""
    if split == "train" and config.learns_from_larger:
        return None
    puzzle, found = puzzle_of(config), []
    for level in sorted(config.chosen_levels):
        boards = puzzle.every(level)
        if boards is None:
            return None
        found += [(level, board) for board in boards if split_of(puzzle.key(board)) == split]
    Random(f"{config.kind}-{config.seed}").shuffle(found)
    return tuple(found)


@lru_cache(maxsize=1 << 16)
def _drawn(config: PuzzleConfig, split: str, index: int) -> tuple[int, Any]:
    puzzle = puzzle_of(config)
    level = config.chosen_levels[index % len(config.chosen_levels)]
    rng = Random(f"{config.kind}-{config.seed}-{split}-{index}")
    while True:
        board = puzzle.draw(rng, level)
        if split_of(puzzle.key(board)) == split:
            return level, board
