"""Inputs of reference functions, drawn from a random generator.

Invariant: few, short and from a small stock of words and numbers, so that examples are read at a glance, and a small
model has few words to learn.

A draw is a function of a `Random` that gives one value. `args` makes the text of a call of draws.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from agent_envs.code.tasks.reference import Inputs

Value = TypeVar("Value")
Draw = Callable[[Random], Value]

WORDS = ("tree", "moon", "level", "noon", "apple", "sun", "river", "cat", "dog", "bee", "egg", "wall", "book", "sea")


def args(*draws: Draw[Any]) -> Inputs:
    """The text of a call with one argument of each draw."""
    return lambda rng: _call([draw(rng) for draw in draws])


def together(draw: Draw[tuple[Any, ...]]) -> Inputs:
    """The text of a call whose arguments depend on each other."""
    return lambda rng: _call(draw(rng))


def chain(begin: Inputs, methods: dict[str, Inputs], *asked: str, most: int = 4) -> Inputs:
    """An object that is made, up to ``most`` of its methods called on it, and one of ``asked`` read at the end."""

    def draw(rng: Random) -> str:
        names = [rng.choice(list(methods)) for _ in range(rng.randint(1, most))]
        calls = "".join(f".{name}{methods[name](rng)}" for name in names)
        return f"{begin(rng)}{calls}.{rng.choice(asked)}"

    return draw


def _call(values: list[Any] | tuple[Any, ...]) -> str:
    return f"({', '.join(map(repr, values))})"


def between(low: int, high: int) -> Draw[int]:
    """A whole number from ``low`` to ``high``."""
    return lambda rng: rng.randint(low, high)


def one_of(*values: Value) -> Draw[Value]:
    """One of the values."""
    return lambda rng: rng.choice(values)


def listed(draw: Draw[Value], low: int = 0, high: int = 6) -> Draw[list[Value]]:
    """A list of ``low`` to ``high`` draws."""
    return lambda rng: [draw(rng) for _ in range(rng.randint(low, high))]


def ordered(draw: Draw[list[Any]]) -> Draw[list[Any]]:
    """A list in rising order."""
    return lambda rng: sorted(draw(rng))


def table(key: Draw[Any], value: Draw[Any], low: int = 0, high: int = 4) -> Draw[dict[Any, Any]]:
    """A dictionary of ``low`` to ``high`` entries, fewer where a key comes twice."""
    return lambda rng: {key(rng): value(rng) for _ in range(rng.randint(low, high))}


def pair(first: Draw[Any], second: Draw[Any]) -> Draw[tuple[Any, Any]]:
    """A tuple of two draws."""
    return lambda rng: (first(rng), second(rng))


def spelled(letters: str, low: int = 0, high: int = 6) -> Draw[str]:
    """A string of ``low`` to ``high`` of these letters."""
    return lambda rng: "".join(rng.choice(letters) for _ in range(rng.randint(low, high)))


def either(*draws: Draw[Any]) -> Draw[Any]:
    """One of the draws."""
    return lambda rng: rng.choice(draws)(rng)


def grid(draw: Draw[Value], low: int = 1, high: int = 3) -> Draw[list[list[Value]]]:
    """Rows of equal length."""

    def rows(rng: Random) -> list[list[Value]]:
        height, width = rng.randint(low, high), rng.randint(low, high)
        return [[draw(rng) for _ in range(width)] for _ in range(height)]

    return rows


def square(draw: Draw[Value], low: int = 1, high: int = 3) -> Draw[list[list[Value]]]:
    """As many rows as columns."""

    def rows(rng: Random) -> list[list[Value]]:
        size = rng.randint(low, high)
        return [[draw(rng) for _ in range(size)] for _ in range(size)]

    return rows


def nested(rng: Random) -> list[Any]:
    """Lists in lists of small numbers, at most three deep."""
    return _nested(rng, 3)


def _nested(rng: Random, depth: int) -> list[Any]:
    inner = depth > 1
    return [_nested(rng, depth - 1) if inner and rng.random() < 0.4 else digit(rng) for _ in range(rng.randint(0, 3))]


def same_or(draw: Draw[list[Any]], other: Draw[Any]) -> Draw[tuple[list[Any], Any]]:
    """A list, and one of its items as often as another value."""

    def both(rng: Random) -> tuple[list[Any], Any]:
        items = draw(rng)
        return items, rng.choice(items) if items and rng.random() < 0.5 else other(rng)

    return both


digit = between(0, 9)
small = between(0, 5)
count = between(1, 4)
positive = between(1, 30)
number = between(-9, 20)
large = between(10, 999)
numbers = listed(number)
some_numbers = listed(number, 1)
smalls = listed(small, 0, 7)
some_smalls = listed(small, 1, 7)
word = one_of(*WORDS)
words = listed(word, 0, 5)
some_words = listed(word, 1, 5)
letter = one_of("a", "b", "c")
letters = spelled("abc")
some_letters = spelled("abc", 1)
mixed = spelled("abAB12 ", 0, 8)
scores = table(word, digit)
some_scores = table(word, digit, 1)


def text(rng: Random) -> str:
    """Up to four words."""
    return " ".join(words(rng)[:4])
