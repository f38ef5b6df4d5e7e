"""Game of 24: combine four numbers from 1 to 13 to 24, fractions in between allowed. All 1362 that can be solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from random import Random

from agent_envs.puzzle.arithmetic import Arithmetic, Numbers, fewest_products

_LARGEST = 13
_TARGETS = range(1, 49)


@dataclass(frozen=True)
class Game24(Arithmetic):
    """Level 1 can be done by + and - alone, level 2 needs one product or quotient, level 3 more."""

    other_targets: bool = False
    """Whether what is drawn may lead to any number from 1 to 48, each as often as the others."""
    whole = False
    goal = "Combine the numbers, two at a time, until only the target is left. Use + - * /. Fractions are allowed."
    longest = 3

    def every(self, level: int) -> Sequence[Numbers]:
        return _solvable()[level]

    def draw(self, rng: Random, level: int) -> Numbers:
        if self.other_targets:
            return _drawn(rng, level)
        return rng.choice(self.every(level))

    def key(self, board: Numbers) -> str:
        return self.show(board)


def _drawn(rng: Random, level: int) -> Numbers:
    while True:
        numbers = tuple(sorted((rng.randint(1, _LARGEST) for _ in range(4)), reverse=True))
        target = rng.choice(_TARGETS)
        products = fewest_products(numbers, target, whole=False)
        if products is not None and min(products, 2) == level - 1:
            return Numbers(numbers, target)


@lru_cache(maxsize=1)
def _solvable() -> dict[int, tuple[Numbers, ...]]:
    """Level → boards. Takes some seconds."""
    found: dict[int, list[Numbers]] = {1: [], 2: [], 3: []}
    for numbers in combinations_with_replacement(range(_LARGEST, 0, -1), 4):
        products = fewest_products(numbers, 24, whole=False)
        if products is not None:
            found[1 + min(products, 2)].append(Numbers(numbers, 24))
    return {level: tuple(boards) for level, boards in found.items()}
