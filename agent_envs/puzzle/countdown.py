"""Countdown: combine all numbers to a target. Whole numbers only; a level is how often one must multiply or divide."""

from dataclasses import dataclass
from random import Random

from agent_envs.puzzle.arithmetic import Arithmetic, Number, Numbers, fewest_products, hand, level_of, steps

TARGETS = range(1, 100)


@dataclass(frozen=True)
class Countdown(Arithmetic):
    """All numbers to a target."""

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
        while True:
            left = hand(rng, self.numbers, self.largest)
            target = _reached(left, rng, products=level > 1)
            if target in TARGETS:
                needed = fewest_products(left, int(target), whole=True)
                assert needed is not None
                if level_of(needed) == level:
                    return Numbers(left, int(target))


def _reached(left: tuple[Number, ...], rng: Random, *, products: bool) -> Number:
    """What comes of combining the numbers at random."""
    while len(left) > 1:
        left = rng.choice([rest for text, rest in steps(left, whole=True) if products or "+" in text or "-" in text])
    return left[0]
