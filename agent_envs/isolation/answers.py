"""What a process of environments, or of a grader, answers, and its validation; nothing in it is trusted.

Invariant: for each request there is one answer, in JSON with the number of the request. Whatever bytes come in, the
result is five (or three) values of exactly the promised types, or `Garbage`.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from agent_envs.core import SettingsError
from agent_envs.isolation.faults import FaultKind, kind_of, one_line

OK, SETTINGS = "ok", "settings"
"""How an answer begins that is none of the FaultKinds."""

SLACK = 4096
"""Bytes by which an answer may be longer than its value."""
_BEGINNINGS = frozenset({OK, SETTINGS, *FaultKind})
_FIVE = "step must answer (str, finite float, bool, bool, dict)"
_TWO = "reset must answer (str, dict) and system_prompt a str"


class Garbage(ValueError):  # noqa: N818
    """An answer that is not what it must be."""


def encode(value: Any) -> bytes:
    """JSON whose text comes back exactly: two surrogates side by side stay two, which ``\\u`` escapes would join.

    Raises TypeError, ValueError or RecursionError for what JSON cannot say, NaN included.
    """
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def answered(serial: int, call: Callable[[], Any], limit: int) -> bytes:
    """[number, "ok", value], or [number, what broke, in one line why], as JSON of at most ``limit`` + `SLACK` bytes."""
    try:
        value = call()
        try:
            encoded = encode([serial, OK, value])
        except (TypeError, ValueError, RecursionError) as error:
            return encode([serial, FaultKind.GARBAGE, f"it answered what JSON cannot say: {why(error)}"])
        if len(encoded) > limit:
            return encode([serial, FaultKind.FLOODED, f"an answer of {len(encoded)} bytes, where {limit} are allowed"])
        return encoded
    except SettingsError as error:
        return encode([serial, SETTINGS, str(error)[:500]])
    except Exception as error:
        return encode([serial, kind_of(error), why(error)])


def why(error: Exception) -> str:
    """`one_line` of an error whose own text may raise."""
    try:
        return one_line(error)
    except Exception:
        return type(error).__name__


def decode(message: bytes, serial: int) -> tuple[str, Any]:
    """(beginning, value) of the answer to the request of that number; the value of a fault is its text."""
    try:
        answer = _DECODER.decode(message.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Garbage("its process did not answer in JSON") from error
    if not (isinstance(answer, list) and len(answer) == 3 and answer[0] == serial):
        raise Garbage("its process did not answer what it was asked")
    _, beginning, value = answer
    if not isinstance(beginning, str) or beginning not in _BEGINNINGS or (beginning != OK and type(value) is not str):
        raise Garbage("its process did not answer what it was asked")
    return beginning, value if beginning == OK else printable(value)


def step_values(value: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
    """Gymnasium's five values of a step."""
    if not isinstance(value, list) or len(value) != 5:
        raise Garbage(f"{_FIVE}, not {_short(value)}")
    observation, reward, terminated, truncated, info = value
    if type(observation) is not str:
        raise Garbage(f"{_FIVE}, but the observation is {_short(observation)}")
    if type(reward) not in (int, float) or not abs(reward) <= sys.float_info.max:
        raise Garbage(f"{_FIVE}, but the reward is {_short(reward)}")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if type(flag) is not bool:
            raise Garbage(f"{_FIVE}, but {name} is {_short(flag)}")
    if type(info) is not dict:
        raise Garbage(f"{_FIVE}, but the info is {_short(info)}")
    return observation, float(reward), terminated, truncated, info


def reset_values(value: Any) -> tuple[str, dict[str, Any], str]:
    """(observation, info, system prompt)."""
    match value:
        case [[str() as observation, dict() as info], str() as prompt]:
            return observation, info, prompt
    raise Garbage(f"{_TWO}, not {_short(value)}")


def nothing(value: Any) -> None:
    """The answer of a call that only does something."""
    if value is not None:
        raise Garbage(f"nothing was to be answered, not {_short(value)}")


def printable(text: str, limit: int = 500) -> str:
    """One line that does no harm where it is shown or written: no control characters, no surrogates."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text[: 2 * limit].split()))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _short(value: Any) -> str:
    return f"{value!r}" if value is None or isinstance(value, bool | float) else f"{type(value).__name__}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_refuse)
