"""Sudoku of 4 x 4 cells: every row, column and quarter holds 1 to 4. What is given allows exactly one solution.

Invariant: a digit may be put wherever its row, column and quarter lack it, so a legal digit can be a wrong one.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, product
from random import Random

from agent_envs.actions import ActionError, Verb
from agent_envs.puzzle import squares
from agent_envs.puzzle.protocol import Puzzle

Grid = tuple[int, ...]
"""Sixteen digits, row by row; 0 is an empty cell."""
_EMPTY = {1: (4, 5), 2: (6, 7, 8), 3: (9, 10, 11)}
"""Level → empty cells at the start."""


def _peers(cell: int) -> tuple[int, ...]:
    """The cells that must not hold what `cell` holds."""
    row, column = divmod(cell, 4)
    others = ((r, c) for r, c in product(range(4), range(4)) if (r, c) != (row, column))
    return tuple(4 * r + c for r, c in others if r == row or c == column or (r // 2, c // 2) == (row // 2, column // 2))


_PEERS = tuple(map(_peers, range(16)))


class Sudoku4(Puzzle[Grid]):
    """Levels have 4 or 5, 6 to 8, and 9 to 11 empty cells."""

    verb = Verb("PUT", "r1c2=3")
    goal = (
        "Fill the grid: every row, column and quarter (2 x 2) holds 1, 2, 3 and 4. "
        "r1c2=3 puts a 3 into row 1, column 2."
    )
    longest = 11

    def draw(self, rng: Random, level: int) -> Grid:
        while True:
            grid, order = list(_solved_grid(rng)), rng.sample(range(16), 16)
            empty = rng.choice(_EMPTY[level])
            for cell in order:
                kept, grid[cell] = grid[cell], 0
                if len(list(islice(_solutions(tuple(grid)), 2))) > 1:
                    grid[cell] = kept
                elif grid.count(0) == empty:
                    return tuple(grid)

    def key(self, board: Grid) -> str:
        """The least of what mirrors, quarter turns and other names of the digits make of it."""
        return min("".join(map(str, _renamed(_turned(board, way)))) for way in range(8))

    def show(self, board: Grid) -> str:
        rows = (" ".join(str(digit or "_") for digit in board[at : at + 4]) for at in range(0, 16, 4))
        return f"grid: {' / '.join(rows)}"

    def moves(self, board: Grid) -> Sequence[str]:
        """The cells with the fewest digits to choose from come first."""
        open_cells = sorted((len(digits), cell, digits) for cell, digits in _choices(board))
        return [f"{squares.name(*divmod(cell, 4))}={digit}" for _, cell, digits in open_cells for digit in digits]

    def solved(self, board: Grid) -> bool:
        return 0 not in board

    def distance(self, board: Grid) -> int | None:
        return board.count(0) if _can_be_filled(board) else None

    def _play(self, board: Grid, text: str) -> Grid:
        where, result, what = text.partition("=")
        square, digit = squares.read(where, 4), what.strip()
        if not result or square is None or digit not in {"1", "2", "3", "4"}:
            raise ActionError(
                "a move is a cell and a digit from 1 to 4, like r1c2=3", "一步是格子和 1 到 4 的数字，如 r1c2=3"
            )
        cell, name = 4 * square[0] + square[1], squares.name(*square)
        if board[cell]:
            raise ActionError(f"{name} is not empty", f"{name} 不是空格")
        there = next((peer for peer in _PEERS[cell] if board[peer] == int(digit)), None)
        if there is not None:
            other = squares.name(*divmod(there, 4))
            raise ActionError(f"{other} holds a {digit} already", f"{other} 已经是 {digit}")
        return (*board[:cell], int(digit), *board[cell + 1 :])

    def mistake(self, board: Grid) -> str | None:
        """It fills the first empty cell with the smallest digit that is allowed there."""
        first = next(((cell, digits) for cell, digits in _choices(board) if digits), None)
        if first is None:
            return None
        cell, digits = first
        move = f"{squares.name(*divmod(cell, 4))}={digits[0]}"
        return None if self.distance(self.play(board, move)) is not None else move

    def words(self) -> Sequence[str]:
        return [*"1234_", *(f"{squares.name(*divmod(cell, 4))}" for cell in range(16))]


def _choices(grid: Grid) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every empty cell with the digits that its row, column and quarter lack."""
    for cell in range(16):
        if not grid[cell]:
            taken = {grid[peer] for peer in _PEERS[cell]}
            yield cell, tuple(digit for digit in range(1, 5) if digit not in taken)


def _solutions(grid: Grid) -> Iterator[Grid]:
    """Every way to fill the grid."""
    choices = min(_choices(grid), key=lambda choice: len(choice[1]), default=None)
    if choices is None:
        yield grid
        return
    cell, digits = choices
    for digit in digits:
        yield from _solutions((*grid[:cell], digit, *grid[cell + 1 :]))


@lru_cache(maxsize=1 << 16)
def _can_be_filled(grid: Grid) -> bool:
    return next(_solutions(grid), None) is not None


@lru_cache(maxsize=1)
def _all_grids() -> tuple[Grid, ...]:
    return tuple(_solutions((0,) * 16))


def _solved_grid(rng: Random) -> Grid:
    return rng.choice(_all_grids())


def _turned(grid: Grid, way: int) -> Grid:
    """One of the eight pictures that mirrors and quarter turns make of a grid."""
    rows = [grid[at : at + 4] for at in range(0, 16, 4)]
    if way & 1:
        rows = rows[::-1]
    if way & 2:
        rows = [row[::-1] for row in rows]
    if way & 4:
        rows = [tuple(column) for column in zip(*rows, strict=True)]
    return tuple(digit for row in rows for digit in row)


def _renamed(grid: Grid) -> Grid:
    """The digits named in the order in which they appear."""
    names = {0: 0}
    return tuple(names.setdefault(digit, len(names)) for digit in grid)
