"""The interface of a puzzle: immutable boards, moves as short texts, and an exact solver.

Invariants:

- A board is a frozen, hashable value that holds the whole problem; no call changes one.
- ``play(board, move)`` takes every text of ``moves(board)`` and refuses everything that is not a legal move.
- ``distance`` is exact: 0 just where ``solved``, None just where no moves lead to a solved board.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Generic, TypeVar

from agent_envs.actions import ActionError, Verb

B = TypeVar("B")
LEVELS = (1, 2, 3)
"""Difficulties that every puzzle has."""
_MAX_MOVE = 60


class Puzzle(ABC, Generic[B]):
    """The rules of one kind of puzzle."""

    verb: Verb
    """The action that makes a move."""
    goal: str
    """What is to be done, and how a move is written: one or two sentences for the system prompt."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """No start needs more moves than this."""

    @abstractmethod
    def draw(self, rng: Random, level: int) -> B:
        """A random start of that level: solvable, not solved, in at most `longest` moves."""

    def every(self, level: int) -> Sequence[B] | None:
        """All starts of that level where there are few enough to name them, else None."""
        return None

    @abstractmethod
    def key(self, board: B) -> str:
        """The same for two starts that are one problem up to symmetry or names: they stay in one split."""

    @abstractmethod
    def show(self, board: B) -> str:
        """The board as the agent sees it."""

    def picture(self, board: B) -> str:
        """What the agent is shown once, before the first board; empty where `show` says all."""
        return ""

    @abstractmethod
    def moves(self, board: B) -> Sequence[str]:
        """All legal moves in a fixed order, the expert's favourites first; none on a solved board."""

    @abstractmethod
    def _play(self, board: B, text: str) -> B:
        """`play` for a text of bounded length."""

    @abstractmethod
    def solved(self, board: B) -> bool:
        """Whether the puzzle is done."""

    @abstractmethod
    def distance(self, board: B) -> int | None:
        """The fewest moves to a solved board, None when there is no way."""

    def mistake(self, board: B) -> str | None:
        """The move that the flawed demonstrator makes here; None where it makes no mistake."""
        return None

    def thought(self, board: B, move: str) -> str:
        """What the expert thinks before it makes `move`."""
        return ""

    def words(self) -> Sequence[str]:
        """What a tokenizer made for the puzzle keeps whole."""
        return ()

    def play(self, board: B, text: str) -> B:
        """The board after a move. Raises `ActionError`, which explains why a text is not a legal move."""
        if len(text) > _MAX_MOVE:
            raise ActionError(f"a move has at most {_MAX_MOVE} characters", f"一步最多 {_MAX_MOVE} 个字符")
        return self._play(board, text)

    def best(self, board: B) -> str | None:
        """The first move on a shortest way to a solved board; None where there is no way or nothing left to do."""
        distance = self.distance(board)
        if not distance:
            return None
        return next(move for move in self.moves(board) if self.distance(self.play(board, move)) == distance - 1)
