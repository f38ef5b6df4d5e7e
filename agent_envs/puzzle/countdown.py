"""Countdown: combine all numbers to a target. Whole numbers only; a level is how often one must multiply or divide."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from agent_envs.puzzle.arithmetic import Arithmetic, Numbers, drawn


@dataclass(frozen=True)
class Countdown(Arithmetic):
    """Level 1 can be done by + and - alone, level 2 needs one product or quotient, level 3 more."""

    numbers: int = 4
    """Numbers at the start."""
    largest: int = 9
    """They are drawn from 1 to this."""
    whole = True
    goal = "Combine the numbers, two at a time, until only the target is left. Use + - * /."

    @property
    def longest(self) -> int:
        return self.numbers - 1

    def draw(self, rng: Random, level: int) -> Numbers:
        return drawn(rng, level, count=self.numbers, largest=self.largest, whole=self.whole)

    def key(self, board: Numbers) -> str:
        return self.show(board)
