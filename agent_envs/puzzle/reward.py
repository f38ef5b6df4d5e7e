"""The reward of a puzzle, and the exact value of a state: pure functions.

Invariant: `turns_needed` is exact, so a state can still be solved just where it is not more than the turns left.
"""

from collections.abc import Iterable, Sequence
from math import comb
from typing import Any

from agent_envs.actions import ActionError
from agent_envs.puzzle.protocol import Puzzle

UNDO = "undo"
"""The move that takes back the last one."""


def reward(puzzle: Puzzle[Any], start: Any, moves: Iterable[str], turns: int) -> float:
    """1 when the moves solve the puzzle within that many turns, else 0.

    A move that is not legal, or an undo where nothing can be taken back, costs its turn and changes nothing.
    """
    line = [start]
    for turn, move in enumerate(moves, 1):
        if turn > turns:
            return 0.0
        if move == UNDO:
            del line[max(1, len(line) - 1) :]
            continue
        try:
            line.append(puzzle.play(line[-1], move))
        except ActionError:
            continue
        if puzzle.solved(line[-1]):
            return 1.0
    return 0.0


def turns_needed(puzzle: Puzzle[Any], line: Sequence[Any], *, undo: bool) -> int | None:
    """The fewest turns to a solved board; None when there is no way.

    `line` are the boards from the start to the present one. Every one of them can be gone back to, a turn for each
    step, where there is an `undo`.
    """
    result = None
    for back, board in enumerate(reversed(line) if undo else line[-1:]):
        distance = puzzle.distance(board)
        if distance is not None and (result is None or back + distance < result):
            result = back + distance
    return result


def still_solvable(puzzle: Puzzle[Any], line: Sequence[Any], left: int, *, undo: bool) -> bool:
    """Whether a perfect agent still succeeds with `left` turns."""
    needed = turns_needed(puzzle, line, undo=undo)
    return needed is not None and needed <= left


def chance(needed: int | None, left: int, skill: float) -> float:
    """P(Binomial(left, skill) >= needed): the chance of one who makes a perfect turn with probability `skill`.

    Its other turns are wasted without harm. 0 when `needed` is None.
    """
    if needed is None or needed > left:
        return 0.0
    fail = sum(comb(left, k) * skill**k * (1 - skill) ** (left - k) for k in range(needed))
    return 1.0 - fail
