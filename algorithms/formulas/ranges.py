"""The settings that most algorithms have, by their usual names: what they may be.

Invariant: a name means the same in every algorithm that has it, and is refused in the same words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING

from algorithms.base import require, require_choice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_SHARE = (lambda x: 0 <= x <= 1, "must lie in 0..1, not")
_ABOVE_0 = (lambda x: x > 0, "must be above 0, not")
_NOT_NEGATIVE = (lambda x: x >= 0, "must not be negative, but is")
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "group": (lambda x: x >= 1, "must be at least 1, not"),
    "discount": _SHARE,
    "gae_lambda": _SHARE,
    "clip": (lambda x: 0 < x < 1, "must lie between 0 and 1, not"),
    "clip_low": _SHARE,
    "clip_high": _NOT_NEGATIVE,
    "dual_clip": (lambda x: x > 1, "must be above 1, not"),
    "std_eps": _NOT_NEGATIVE,
    "length_norm": _ABOVE_0,
    "value_coef": _NOT_NEGATIVE,
    "value_clip": _ABOVE_0,
    "kl_coef": _NOT_NEGATIVE,
}


def require_company(group: int) -> None:
    """Raises ValueError for a group in which an episode would be alone."""
    require(group >= 2, f"group must be at least 2, not {group}: one episode alone has nothing to compare with")


def require_usual(settings: DataclassInstance) -> None:
    """Raises ValueError for a field of such a name that is out of its range, and for a choice that there is not.

    A field is a choice when its default is a member of a StrEnum.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(field.default, StrEnum):
            require_choice(value, type(field.default))
        if field.name in RANGES:
            holds, rule = RANGES[field.name]
            require(holds(value), f"{field.name} {rule} {value}")
