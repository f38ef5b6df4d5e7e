"""Game of 24: combine four numbers from 1 to 13 to 24, fractions in between allowed. All 1362 that can be solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from random import Random

from agent_envs.puzzle.arithmetic import Arithmetic, Numbers, drawn, fewest_products

_LARGEST = 13


@dataclass(frozen=True)
class Game24(Arithmetic):
    """Level 1 can be done by + and - alone, level 2 needs one product or quotient, level 3 more."""

    other_targets: bool = False
    """Whether what is drawn may lead to any number from 1 to 99."""
    whole = False
    goal = "Combine the numbers, two at a time, until only the target is left. Use + - * /. Fractions are allowed."
    longest = 3

    def every(self, level: int) -> Sequence[Numbers]:
        return _solvable()[level]

    def draw(self, rng: Random, level: int) -> Numbers:
        if self.other_targets:
            return drawn(rng, level, count=4, largest=_LARGEST, whole=self.whole)
        return rng.choice(self.every(level))

    def key(self, board: Numbers) -> str:
        return self.show(board)


@lru_cache(maxsize=1)
def _solvable() -> dict[int, tuple[Numbers, ...]]:
    """Level → boards. Takes some seconds."""
    found: dict[int, list[Numbers]] = {1: [], 2: [], 3: []}
    for numbers in combinations_with_replacement(range(_LARGEST, 0, -1), 4):
        products = fewest_products(numbers, 24, whole=False)
        if products is not None:
            found[1 + min(products, 2)].append(Numbers(numbers, 24))
    return {level: tuple(boards) for level, boards in found.items()}
