"""One line of episodes.jsonl in the form that the page needs.

Invariant: every number is finite or None, every text a str, and the three lists of a turn are equally long; a line that
cannot be made so is reported, not repaired. Lines written before values, advantages and attempts were recorded
are read with None in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")


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
    version: int | None
    terminated: bool
    truncated: bool
    value: float | None
    """V of the state that the action was taken in."""
    advantage: float | None
    oracle: float | None
    """The environment's own chance of success in the state after the action."""
    played: float | None
    """Mean return of what the policy played on from there, its standard error, and how much the action changed it."""
    played_error: float | None
    progress: float | None
    values: Mapping[str, float | None]
    """By name, where several valued and credited the episode."""
    advantages: Mapping[str, float | None]


@dataclass(frozen=True)
class Episode:
    """One recorded episode; ``turns`` is None where the environment broke it."""

    update: int
    env: str
    """Where the run had several; else empty."""
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
    oracle: float | None
    """In the first state, as in `Turn`."""
    played: float | None
    played_error: float | None
    end_value: float | None
    """V of the last state."""
    turns: tuple[Turn, ...] | None
    fault: Mapping[str, str] | None


def episode_of(row: Mapping[str, Any]) -> Episode:
    """From a line that ``damage`` finds nothing wrong with."""
    return _of(Episode, row)


def _of(cls: type[T], row: Mapping[str, Any]) -> T:
    return cls(**{f.name: READ[str(f.type)](row.get(f.name)) for f in fields(cls)})  # type: ignore[arg-type]


READ: Mapping[str, Callable[[Any], Any]] = {
    "str": lambda x: str(x or ""),
    "int": lambda x: x or 0,
    "int | None": lambda x: x if whole(x) else None,
    "bool": bool,
    "bool | None": lambda x: x if isinstance(x, bool) else None,
    "float | None": lambda x: _number(x),
    "tuple[int, ...]": lambda x: tuple(x or ()),
    "tuple[float | None, ...]": lambda x: tuple(_number(y, 4) for y in x),
    "tuple[Turn, ...] | None": lambda x: None if x is None else tuple(_of(Turn, turn) for turn in x),
    "Mapping[str, float | None]": lambda x: {str(k): _number(v) for k, v in (x or {}).items()},
    "Mapping[str, str] | None": lambda x: {str(k): str(v) for k, v in x.items()} if isinstance(x, dict) else None,
}
"""How a field is read, by its type as it is declared."""


def damage(row: Mapping[str, Any]) -> str | None:
    """What is wrong with a line of episodes.jsonl, or None."""
    turns = row.get("turns")
    if not all(row.get(name) is None or whole(row[name]) for name in ("sample", "attempt", "level")):
        return "its 'sample', 'attempt' or 'level' is no whole number"
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
        if not all(isinstance(turn.get(name) or {}, dict) for name in ("values", "advantages")):
            return f"turn {number} has 'values' or 'advantages' of the wrong kind"
    return None


def numbers(row: Mapping[str, Any]) -> dict[str, float | int | None]:
    """The numbers of a record; None stands for those that are not finite."""
    kept = {key: value for key, value in row.items() if value is None or isinstance(value, (int, float))}
    return {key: value if whole(value) else _number(value, 12) for key, value in kept.items()}


def whole(value: Any) -> bool:
    """Whether it is a whole number that a browser holds exactly."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _number(value: Any, digits: int = 6) -> float | None:
    """A finite number, or None for anything else."""
    if not isinstance(value, (int, float)) or not abs(value) < 1e300:
        return None
    return round(float(value), digits)


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(whole(i) and 0 <= i < 2**32 for i in value)
