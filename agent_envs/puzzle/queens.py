"""Queens: complete a board on which some stand, so that none attacks another.

Invariant: what is given can be completed; a queen may be put on any square that is not attacked, so a legal queen can
be a wrong one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from agent_envs.actions import ActionError, Verb
from agent_envs.puzzle import squares
from agent_envs.puzzle.filling import Filling

_SHAPES = {1: (7, (3,)), 2: (8, (3, 4)), 3: (8, (1, 2))}
"""Level → side of the board, queens that are given."""
_NONE = -1


@dataclass(frozen=True)
class Queens:
    """A board; its side is the number of rows."""

    columns: tuple[int, ...]
    """For each row the column of its queen, from 0; -1 where there is none."""


class NQueens(Filling[Queens]):
    """Level 1 leaves 4 queens to place on 7 rows, level 2 leaves 4 or 5 on 8 rows, level 3 leaves 6 or 7."""

    verb = Verb("PLACE", "r1c2")
    goal = "Place queens until every row has one. No two may share a row, column or diagonal. r1c2 is row 1, column 2."
    longest = 7

    def draw(self, rng: Random, level: int) -> Queens:
        side, given = _SHAPES[level]
        solution = self.any_solution(Queens((_NONE,) * side), rng)
        kept = rng.sample(range(side), rng.choice(given))
        return Queens(tuple(column if row in kept else _NONE for row, column in enumerate(solution.columns)))

    def key(self, board: Queens) -> str:
        """The least of the eight pictures that mirrors and quarter turns make of it."""
        side = len(board.columns)
        return f"{side}: {min(sorted(squares.turned(cell, side, way) for cell in _placed(board)) for way in range(8))}"

    def show(self, board: Queens) -> str:
        side = len(board.columns)
        rows = (" ".join("Q" if at == column else "_" for at in range(side)) for column in board.columns)
        return f"board: {' / '.join(rows)}"

    def choices(self, board: Queens) -> Iterator[tuple[int, list[int]]]:
        """Every empty row with the columns that no queen attacks."""
        stand = _placed(board)
        for row, there in enumerate(board.columns):
            if there == _NONE:
                columns = range(len(board.columns))
                yield row, [at for at in columns if not any(_attacks(row, at, *other) for other in stand)]

    def filled(self, board: Queens, place: int, what: int) -> Queens:
        return Queens((*board.columns[:place], what, *board.columns[place + 1 :]))

    def move(self, place: int, what: int) -> str:
        return squares.name(place, what)

    def _play(self, board: Queens, text: str) -> Queens:
        side = len(board.columns)
        square = squares.read(text, side)
        if square is None:
            raise ActionError(
                f"a move is a square like r1c2, up to r{side}c{side}", f"一步是格子，如 r1c2，到 r{side}c{side}"
            )
        row, column = square
        for other, there in enumerate(board.columns):
            if there != _NONE and _attacks(row, column, other, there):
                name = squares.name(other, there)
                raise ActionError(f"the queen on {name} attacks that square", f"{name} 的皇后攻击那一格")
        return self.filled(board, row, column)

    def mistake(self, board: Queens) -> str | None:
        """It takes the first square of a row that is not attacked."""
        moves = self.moves(board)
        if not moves:
            return None
        best = self.best(board) or moves[0]
        first = next(move for move in moves if move[:2] == best[:2])
        return None if first == best and self.distance(board) else first

    def words(self) -> Sequence[str]:
        return ["Q", "_", *(squares.name(row, column) for row in range(8) for column in range(8))]


def _attacks(row: int, column: int, other: int, there: int) -> bool:
    return row == other or column == there or abs(row - other) == abs(column - there)


def _placed(board: Queens) -> list[squares.Cell]:
    return [(row, column) for row, column in enumerate(board.columns) if column != _NONE]
