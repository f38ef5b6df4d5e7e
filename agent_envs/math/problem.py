"""Problems with their answers, and the generator of chains of steps.

Invariant: the first step of a generated problem (both operands and the sign) decides which split it is in, so no two
splits share a problem, nor the beginning of one.

A generated problem defines letters one by one: ``A = 47, B = A + 38, C = B - 29. What is C?``
"""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from agent_envs.core import SettingsError, Task
from agent_envs.math.columns import APPLY, carries
from agent_envs.math.config import MathConfig
from agent_envs.splits import hashed_split

LETTERS = "ABCDEFG"
_TRIES = 10_000
_DRAWS = 20
"""Operands that are tried until one carries, or until one does not; few numbers have none of either."""


@dataclass(frozen=True)
class Chain:
    """The letters of a generated problem: the first has a value, each of the others is made from the one before it."""

    start: int
    steps: tuple[tuple[str, int], ...]
    """(sign, operand) of the second letter, the third …"""

    def value(self, step: int, before: int) -> int:
        """The value of letter ``step`` + 1 (steps count from 0), when the letter before it has the value ``before``."""
        sign, operand = self.steps[step]
        return APPLY[sign](before, operand)

    @property
    def answer(self) -> int:
        value = self.start
        for step in range(len(self.steps)):
            value = self.value(step, value)
        return value


@dataclass(frozen=True)
class Problem:
    """What the environment knows of a task and the agent does not."""

    gold: str
    """The right answer, in the source's notation."""
    chain: Chain | None = None
    """How a generated problem is made."""
    solution: tuple[str, ...] = ()
    """The source's own solution, as thought factors without their blank lines."""
    scorer: tuple[str, int, int, str] | None = None
    """(family, seed, number, digest of the question) of the outside task whose own scorer decides; None: values are
    compared."""


def generate(config: MathConfig, split: str, index: int) -> Task:
    """Task ``index`` of a split: levels and languages take turns."""
    levels = range(config.min_steps, config.max_steps + 1)
    level = levels[index % len(levels)]
    language = config.languages[index // len(levels) % len(config.languages)]
    rng = Random(f"math-{config.seed}-{split}-{index}")
    for _ in range(_TRIES):
        chain = _chain(config, level, rng)
        if chain is not None and _split(chain) == split:
            prompt = ask(chain, language)
            return Task(f"math-{split}-{index}", split, prompt, language, level, Problem(str(chain.answer), chain))
    raise SettingsError(
        f"math: no problem of {level} steps with {config.digits} digits and {config.operations} was found: "
        "allow more digits or operations, or fewer steps"
    )


def ask(chain: Chain, language: str) -> str:
    """The task's text."""
    comma, stop = ("，", "。") if language == "zh" else (", ", ". ")
    lines = [f"{LETTERS[0]} = {chain.start}"]
    lines += [f"{LETTERS[i + 1]} = {LETTERS[i]} {sign} {b}" for i, (sign, b) in enumerate(chain.steps)]
    last = LETTERS[len(chain.steps)]
    return comma.join(lines) + stop + (f"求 {last}。" if language == "zh" else f"What is {last}?")


def _chain(config: MathConfig, level: int, rng: Random) -> Chain | None:
    low, high = (10 ** (config.digits - 1) if config.digits > 1 else 0), 10**config.digits - 1
    value = start = rng.randint(low, high)
    steps = []
    for _ in range(level):
        sign = rng.choice(config.operations)
        result = _operands(value, sign, low, high)
        if not result:
            return None
        operand, wanted = rng.choice(result), rng.random() < config.carries
        for _ in range(_DRAWS):
            if carries(value, sign, operand) == wanted:
                break
            operand = rng.choice(result)
        steps.append((sign, operand))
        value = APPLY[sign](value, operand)
    return Chain(start, tuple(steps))


@lru_cache(maxsize=1 << 16)
def _operands(value: int, sign: str, low: int, high: int) -> range:
    """Operands that keep the result between ``low`` and ``high``."""
    if sign == "×":
        return range(2, min(9, high // value) + 1) if value else range(0)
    return range(max(1, low), (high - value if sign == "+" else value - low) + 1)


def _split(chain: Chain) -> str:
    sign, operand = chain.steps[0]
    return hashed_split(f"{chain.start} {sign} {operand}")
