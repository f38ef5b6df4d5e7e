"""Game of 24: combine four numbers from 1 to 13 to 24, fractions in between allowed. All 1362 that can be solved."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from random import Random

from agent_envs.puzzle.arithmetic import Arithmetic, Numbers, fewest_products, hand, level_of

KING = 13
"""The largest number of the game."""
_TARGET = 24


@dataclass(frozen=True)
class Game24(Arithmetic):
    """Four numbers to 24."""

    largest: int = KING
    """What is drawn has numbers from 1 to this."""
    whole = False
    goal = "Combine the numbers, two at a time, until only the target is left. Use + - * /. Fractions are allowed."
    longest = 3

    def every(self, level: int) -> Sequence[Numbers]:
        """The boards of that level with numbers from 1 to 13."""
        return _solvable()[level]

    def draw(self, rng: Random, level: int) -> Numbers:
        while True:
            left = hand(rng, 4, self.largest)
            products = fewest_products(left, _TARGET, whole=False)
            if products is not None and level_of(products) == level:
                return Numbers(left, _TARGET)


@lru_cache(maxsize=1)
def _solvable() -> dict[int, tuple[Numbers, ...]]:
    """Level → boards. Takes some seconds."""
    result: dict[int, list[Numbers]] = {1: [], 2: [], 3: []}
    for left in combinations_with_replacement(range(KING, 0, -1), 4):
        products = fewest_products(left, _TARGET, whole=False)
        if products is not None:
            result[level_of(products)].append(Numbers(left, _TARGET))
    return {level: tuple(boards) for level, boards in result.items()}
