"""One line of episodes.jsonl in the form that the page needs.

Invariant: every number is finite or None, every text a str, and the three lists of a turn are equally long; a line that
cannot be made so is reported, not repaired. Lines written before values, advantages and attempts were recorded
are read with None in their place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Turn:
    """One action and what the environment answered."""

    action: str
    observation: str
    tokens: tuple[int, ...]
    """The ids that were sampled: these, and no others, are trained."""
    logp: tuple[float | None, ...]
    entropy: tuple[float | None, ...]
    observation_tokens: tuple[int, ...]
    """The ids of the state after the action, with the template's own."""
    reward: float | None
    version: int
    terminated: bool
    truncated: bool
    value: float | None
    """V of the state that the action was taken in."""
    advantage: float | None


@dataclass(frozen=True)
class Episode:
    """One recorded episode; ``turns`` is None where the environment broke it."""

    update: int
    task: str
    sample: int
    attempt: int
    language: str
    level: int
    success: bool | None
    reward: float | None
    metrics: Mapping[str, float | None]
    system: str
    user: str
    prompt_tokens: tuple[int, ...]
    end_value: float | None
    """V of the last state."""
    turns: tuple[Turn, ...] | None
    fault: Mapping[str, str] | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Episode:
        """From a line that ``damage`` finds nothing wrong with."""
        fault = row.get("fault")
        turns = row.get("turns")
        success = row.get("success")
        return cls(
            update=row["update"],
            task=row["task"],
            sample=row.get("sample") or 0,
            attempt=row.get("attempt") or 0,
            language=str(row.get("language") or ""),
            level=int(row.get("level") or 0),
            success=success if isinstance(success, bool) else None,
            reward=_number(row.get("reward")),
            metrics={str(k): _number(v) for k, v in (row.get("metrics") or {}).items()},
            system=str(row.get("system") or ""),
            user=str(row.get("user") or ""),
            prompt_tokens=tuple(row.get("prompt_tokens") or ()),
            end_value=_number(row.get("end_value")),
            turns=None if turns is None else tuple(map(_turn, turns)),
            fault={str(k): str(v) for k, v in fault.items()} if isinstance(fault, dict) else None,
        )


def damage(row: Mapping[str, Any]) -> str | None:
    """What is wrong with a line of episodes.jsonl, or None."""
    turns = row.get("turns")
    if turns is None:
        return None if isinstance(row.get("fault"), dict) else "it has neither 'turns' nor a 'fault'"
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return "its 'turns' are no list of turns"
    if not isinstance(row.get("metrics") or {}, dict) or not _ids(row.get("prompt_tokens") or []):
        return "its 'metrics' or 'prompt_tokens' are of the wrong kind"
    for number, turn in enumerate(turns):
        if not all(isinstance(turn.get(name), str) for name in ("action", "observation")):
            return f"turn {number} has no text"
        if not all(_ids(turn.get(name)) for name in ("tokens", "observation_tokens")):
            return f"turn {number} has no token ids"
        if not all(isinstance(turn.get(n), list) and len(turn[n]) == len(turn["tokens"]) for n in ("logp", "entropy")):
            return f"turn {number} has not one log-probability and entropy for each token"
    return None


def _turn(row: Mapping[str, Any]) -> Turn:
    return Turn(
        action=row["action"],
        observation=row["observation"],
        tokens=tuple(row["tokens"]),
        logp=tuple(_number(x, 4) for x in row["logp"]),
        entropy=tuple(_number(x, 4) for x in row["entropy"]),
        observation_tokens=tuple(row["observation_tokens"]),
        reward=_number(row.get("reward")),
        version=row["version"] if isinstance(row.get("version"), int) else -1,
        terminated=bool(row.get("terminated")),
        truncated=bool(row.get("truncated")),
        value=_number(row.get("value")),
        advantage=_number(row.get("advantage")),
    )


def _number(value: Any, digits: int = 6) -> float | None:
    """A finite number, or None for anything else."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return round(float(value), digits)


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(i, int) and i >= 0 for i in value)
