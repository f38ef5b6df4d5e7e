"""Ranges of settings: what is refused, and in which words."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges, check_share


@pytest.mark.parametrize(
    ("value", "bound", "refused"),
    [
        (1, 1, ""),
        (math.inf, 1, ""),
        (0, 1, "pond: fish must be at least 1, not 0"),
        (math.nan, 1, "pond: fish must be at least 1, not nan"),
        (3, (1, 3), ""),
        (4, (1, 3), "pond: fish must be from 1 to 3, not 4"),
        (0.5, (1, 3), "pond: fish must be from 1 to 3, not 0.5"),
        (math.nan, (1, 3), "pond: fish must be from 1 to 3, not nan"),
    ],
)
def test_bounds_are_allowed_and_what_is_outside_is_named(value: float, bound: Any, refused: str) -> None:
    settings = SimpleNamespace(fish=value)
    if not refused:
        check_ranges(settings, SettingsError, "pond: ", fish=bound)
        return
    with pytest.raises(SettingsError) as error:
        check_ranges(settings, SettingsError, "pond: ", fish=bound)
    assert str(error.value) == refused


@pytest.mark.parametrize("value", [0, 1, -0.5, math.nan])
def test_a_share_lies_between(value: float) -> None:
    check_share(SimpleNamespace(skill=0.5), ValueError, "", "skill")
    with pytest.raises(ValueError, match="skill must lie between 0 and 1, not"):
        check_share(SimpleNamespace(skill=value), ValueError, "", "skill")
