"""Boards with empty places that are filled one by one, each as its neighbours allow: sudoku and queens.

Invariant: what is filled is never emptied, so a board is solved when it is full, and is as many moves from that as it
has empty places, or can never be filled.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from agent_envs.puzzle.protocol import B, Puzzle


class Filling(Puzzle[B]):
    """A place is a number, and so is what fills it."""

    @abstractmethod
    def choices(self, board: B) -> Iterable[tuple[int, Sequence[int]]]:
        """Every empty place with what may fill it."""

    @abstractmethod
    def filled(self, board: B, place: int, what: int) -> B:
        """The board with one place filled."""

    @abstractmethod
    def move(self, place: int, what: int) -> str:
        """The text of that move."""

    def moves(self, board: B) -> Sequence[str]:
        """The places with the fewest ways to fill them come first."""
        ways = sorted((len(fitting), place, fitting) for place, fitting in self.choices(board))
        return [self.move(place, what) for _, place, fitting in ways for what in fitting]

    def solved(self, board: B) -> bool:
        return not any(True for _ in self.choices(board))

    def distance(self, board: B) -> int | None:
        return _distance(self, board)

    def solutions(self, board: B) -> Iterator[B]:
        """Every way to fill the board."""
        choice = min(self.choices(board), key=lambda choice: len(choice[1]), default=None)
        if choice is None:
            yield board
            return
        place, fitting = choice
        for what in fitting:
            yield from self.solutions(self.filled(board, place, what))

    def any_solution(self, board: B, rng: Random) -> B:
        """A way to fill a board that has few of them, or that is asked about often."""
        solution: B = rng.choice(_all_solutions(self, board))
        return solution


@lru_cache(maxsize=1 << 16)
def _distance(puzzle: Filling[Any], board: Any) -> int | None:
    possible = next(puzzle.solutions(board), None) is not None
    return sum(1 for _ in puzzle.choices(board)) if possible else None


@lru_cache(maxsize=8)
def _all_solutions(puzzle: Filling[Any], board: Any) -> tuple[Any, ...]:
    return tuple(puzzle.solutions(board))
