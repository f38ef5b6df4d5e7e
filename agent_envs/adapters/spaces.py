"""Values of Gymnasium spaces as text, and text as values.

A discrete value is its name or number, numbers are rounded to three places, parts stand under each other with their
names. What would be a wall of numbers, such as an image, is refused: it has to be described by a function.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from agent_envs.actions import ActionError
from agent_envs.core import SettingsError

MOST_NUMBERS = 200
"""Numbers of one array that are still written."""
_LONGEST = 2000
"""Characters of an action that is read."""


def check_readable(space: spaces.Space[Any], who: str) -> None:
    """Raises SettingsError for a space whose values cannot be written as text."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            check_readable(part, who)
    elif isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        size = int(np.prod(space.shape))
        if size > MOST_NUMBERS:
            raise SettingsError(f"{who}: its observations are {size:,} numbers: name a function with --gym.describe")
    elif not isinstance(space, spaces.Discrete | spaces.Text):
        raise SettingsError(
            f"{who}: its observations are a {type(space).__name__}: name a function with --gym.describe"
        )


def text_of(space: spaces.Space[Any], value: Any) -> str:
    """A value of a space that `check_readable` accepts."""
    if isinstance(space, spaces.Dict):
        return "\n".join(_labelled(str(name), text_of(part, value[name])) for name, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return "\n".join(text_of(part, one) for part, one in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.Text):
        return str(value)
    if isinstance(space, spaces.Discrete):
        return str(int(value))
    return _rows(np.asarray(value))


def _labelled(name: str, text: str) -> str:
    return f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


def _rows(array: np.ndarray) -> str:
    """Numbers of the last axis beside each other, the rest below each other."""
    if array.ndim == 0:
        return _number(array.item())
    if array.ndim == 1:
        return " ".join(_number(x) for x in array.tolist())
    return "\n".join(_rows(part) for part in array)


def _number(x: float) -> str:
    return f"{x:.3f}".rstrip("0").rstrip(".") if isinstance(x, float) else str(int(x))


def action_of(space: spaces.Space[Any], text: str, names: Sequence[str]) -> Any:
    """The action that a text stands for: a name, a number, a JSON list of numbers, or the text itself.

    Raises ActionError.
    """
    if isinstance(space, spaces.Discrete):
        wanted = text.casefold()
        known = [name.casefold() for name in names]
        if wanted not in known:
            raise ActionError(f"there is no such action; there are {', '.join(names)}")
        return int(space.start) + known.index(wanted)
    if isinstance(space, spaces.Text) and space.contains(text):
        return text
    try:
        written = np.asarray(json.loads(text[:_LONGEST]), dtype=np.float64)
        value = written.astype(space.dtype) if np.isfinite(written).all() else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        value = None
    # A whole number that was not written as one would be rounded.
    if value is None or not space.contains(value) or (value.dtype.kind in "iu" and (value != written).any()):
        raise ActionError(f"an action is {form_of(space)}")
    return value


def form_of(space: spaces.Space[Any]) -> str:
    """How an action that has no name is written."""
    if isinstance(space, spaces.Text):
        return f"a text of {space.min_length} to {space.max_length} of the characters {space.characters:.100}"
    shape = " x ".join(map(str, space.shape or ()))
    if isinstance(space, spaces.Box):
        return f"a JSON list of {shape} numbers from {_rows(space.low)} to {_rows(space.high)}"
    if isinstance(space, spaces.MultiDiscrete):
        return f"a JSON list of whole numbers from {_rows(space.start)}, each below {_rows(space.start + space.nvec)}"
    return f"a JSON list of {shape} zeros and ones"


def check_actions(space: spaces.Space[Any], who: str) -> None:
    """Raises SettingsError for a space of actions that `action_of` cannot read."""
    if not isinstance(space, spaces.Discrete | spaces.Text | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        raise SettingsError(f"{who}: its actions are a {type(space).__name__}, which cannot be written as text")
