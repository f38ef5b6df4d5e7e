"""Small budgets for trial runs: with ``TURNWISE_BUDGET=small`` every program bounds what takes long."""

import os
import sys
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar

from runners.command_line.errors import UserError

T = TypeVar("T")
VARIABLE = "TURNWISE_BUDGET"
SMALL = {
    **{
        "updates": 2,
        "value_updates": 1,
        "env_steps": 100,
        "episodes": 8,
        "minibatches": 1,
        "replay_steps": 2,
        "continuations": 2,
    },
    **{"overprovision": 1},
    **{"eval_tasks": 8, "test_tasks": 8, "tasks": 8, "pass_samples": 2, "pass_tasks": 8},
    **{"steps": 150, "demonstrations": 300, "drill_texts": 300},  # fewer, and actions never end: that takes longer
    **{"seeds": 2, "tune_env_steps": 100, "credit_episodes": 8},
}
"""Largest value of a program's settings, by name; None stands for no limit."""


def bounded(settings: T) -> T:
    """A program's settings within the budget; those of environments and algorithms stay. Raises UserError."""
    budget = os.environ.get(VARIABLE, "")
    if budget not in ("", "small"):
        raise UserError(f"{VARIABLE} must be small or unset, not {budget!r}")
    if not budget or not type(settings).__module__.startswith("runners."):
        return settings
    _say()
    known: Any = settings
    now = {f.name: getattr(known, f.name) for f in fields(known) if f.name in SMALL}
    bounds = {name: SMALL[name] if value is None else min(value, SMALL[name]) for name, value in now.items()}
    try:
        return replace(known, **bounds)
    except ValueError as error:
        raise UserError(f"{VARIABLE}=small: {error}") from None


@cache
def _say() -> None:
    print(f"{VARIABLE}=small: budgets are small, to try commands out; the figures mean nothing", file=sys.stderr)
