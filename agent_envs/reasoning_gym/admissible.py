"""Answers that a data set's own scorer must not judge: it would give full marks for what solves nothing, or carry out
what was written.

Invariant: a scorer that evaluates text gets numbers, names and operators only, and calls of elementary functions where
answers need them; nothing that could reach into the process that scores.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

_WORDS = re.compile(r"[\w\s]*")
"""What cannot call anything: an answer as these data sets write it. In another form it gets half marks at most."""
_ARITHMETIC = re.compile(r"[\d\s+\-*/()]*")
_FORMULA = re.compile(r"(\d+(\.\d*)?(?!\w)|[A-Za-z][A-Za-z\d]*|[\s+\-*/^(),])*")
_CALLED = re.compile(r"([A-Za-z][A-Za-z\d]*)\s*\(")
_TRIGONOMETRY = {"sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh"}
_ELEMENTARY = frozenset({"exp", "log", "ln", "sqrt", "Abs", *_TRIGONOMETRY})
_CLOSE = Fraction(1, 10_000)
"""Of a probability, as the scorer of `coin_flip` has it before it looks at digits."""


def words(answer: str, _: Mapping[str, Any]) -> bool:
    return _WORDS.fullmatch(answer) is not None


def arithmetic(answer: str, _: Mapping[str, Any]) -> bool:
    return _ARITHMETIC.fullmatch(answer) is not None


def formula(answer: str, _: Mapping[str, Any]) -> bool:
    return _FORMULA.fullmatch(answer) is not None and set(_CALLED.findall(answer)) <= _ELEMENTARY


def with_the_numbers(answer: str, entry: Mapping[str, Any]) -> bool:
    """Its scorer takes any four numbers that make 24."""
    used = sorted(map(int, re.findall(r"\d+", answer)))
    return arithmetic(answer, entry) and used == sorted(entry["metadata"]["numbers"])


def same_word(answer: str, entry: Mapping[str, Any]) -> bool:
    """Its scorer compares whether there is an answer."""
    return answer.strip().lower() == str(entry["answer"]).lower()


def close(answer: str, entry: Mapping[str, Any]) -> bool:
    """Its scorer gives full marks for the first digit."""
    try:
        mine, right = (Fraction(text.replace(",", "")) for text in (answer, str(entry["answer"])))
    except (ValueError, ZeroDivisionError):
        return False
    return abs(mine - right) <= _CLOSE


ADMISSIBLE: Mapping[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "binary_matrix": words,
    "coin_flip": close,
    "countdown": arithmetic,
    "game_of_life_halting": same_word,
    "intermediate_integration": formula,
    "n_queens": words,
    "puzzle24": with_the_numbers,
    "simple_integration": formula,
    "spiral_matrix": words,
    "string_insertion": words,
}


def admissible(dataset: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the data set's scorer may judge an answer; any other is wrong."""
    return dataset not in ADMISSIBLE or ADMISSIBLE[dataset](answer, entry)
