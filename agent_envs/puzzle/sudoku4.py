"""Sudoku of 4 x 4 cells: every row, column and quarter holds 1 to 4. What is given allows exactly one solution.

Invariant: a digit may be put wherever its row, column and quarter lack it, so a legal digit can be a wrong one.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product
from random import Random

from agent_envs.actions import ActionError, Verb
from agent_envs.puzzle import squares
from agent_envs.puzzle.filling import Filling

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


class Sudoku4(Filling[Grid]):
    """Levels have 4 or 5, 6 to 8, and 9 to 11 empty cells."""

    verb = Verb("PUT", "r1c2=3")
    goal = (
        "Fill the grid: every row, column and quarter (2 x 2) holds 1, 2, 3 and 4. "
        "r1c2=3 puts a 3 into row 1, column 2."
    )
    longest = 11

    def draw(self, rng: Random, level: int) -> Grid:
        while True:
            grid, order = list(self.any_solution((0,) * 16, rng)), rng.sample(range(16), 16)
            empty = rng.choice(_EMPTY[level])
            for cell in order:
                kept, grid[cell] = grid[cell], 0
                if len(list(islice(self.solutions(tuple(grid)), 2))) > 1:
                    grid[cell] = kept
                elif grid.count(0) == empty:
                    return tuple(grid)

    def key(self, board: Grid) -> str:
        """The least of what mirrors, quarter turns and other names of the digits make of it."""
        return min("".join(map(str, _renamed(_turned(board, way)))) for way in range(8))

    def show(self, board: Grid) -> str:
        rows = (" ".join(str(digit or "_") for digit in board[at : at + 4]) for at in range(0, 16, 4))
        return f"grid: {' / '.join(rows)}"

    def choices(self, board: Grid) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Every empty cell with the digits that its row, column and quarter lack."""
        for cell in range(16):
            if not board[cell]:
                taken = {board[peer] for peer in _PEERS[cell]}
                yield cell, tuple(digit for digit in range(1, 5) if digit not in taken)

    def filled(self, board: Grid, place: int, what: int) -> Grid:
        return (*board[:place], what, *board[place + 1 :])

    def move(self, place: int, what: int) -> str:
        return f"{squares.name(*divmod(place, 4))}={what}"

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
        return self.filled(board, cell, int(digit))

    def mistake(self, board: Grid) -> str | None:
        """It fills the first empty cell with the smallest digit that is allowed there."""
        first = next(((cell, digits) for cell, digits in self.choices(board) if digits), None)
        if first is None:
            return None
        move = self.move(first[0], first[1][0])
        return None if self.distance(self.play(board, move)) is not None else move

    def words(self) -> Sequence[str]:
        return [*"1234_", *(f"{squares.name(*divmod(cell, 4))}" for cell in range(16))]


def _turned(grid: Grid, way: int) -> Grid:
    """One of the eight pictures that mirrors and quarter turns make of a grid."""
    places = {squares.turned(divmod(cell, 4), 4, way): digit for cell, digit in enumerate(grid)}
    return tuple(digit for _, digit in sorted(places.items()))


def _renamed(grid: Grid) -> Grid:
    """The digits named in the order in which they appear."""
    names = {0: 0}
    return tuple(names.setdefault(digit, len(names)) for digit in grid)
