"""Reference functions: real code of this package, descriptions in two languages, and inputs.

Invariant: a reference is pure, ends at once, and gives plain literals. Its text is what stands in its file, from `def`
or `class` on, so it can be shown, changed and run elsewhere; here only the unchanged one is ever run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

Inputs = Callable[[Random], str]
"""Draws what follows the name in a call of the reference: `([1, 2], 3)`, or `(5).add(2).total` for a class."""
Code = TypeVar("Code", bound=Callable[..., Any])

_MARK = "turnwise_reference"


@dataclass(frozen=True)
class About:
    """What is said of a reference where it is written."""

    statement: dict[str, str]
    """Language → what it does, one sentence."""
    inputs: Inputs
    uses: tuple[Callable[..., Any], ...]


def reference(en: str, zh: str, inputs: Inputs, *, uses: tuple[Callable[..., Any], ...] = ()) -> Callable[[Code], Code]:
    """Marks a function or class of the library; ``uses`` are the references that it calls, each from a file of its own.

    It is left as it is, so that others can call it.
    """

    def mark(code: Code) -> Code:
        setattr(code, _MARK, About({"en": en, "zh": zh}, inputs, uses))
        return code

    return mark


def about(code: object) -> About | None:
    """What was said of it; None for what is not a reference."""
    result = getattr(code, _MARK, None)
    return result if isinstance(result, About) else None
