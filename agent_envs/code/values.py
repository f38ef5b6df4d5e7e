"""Plain values that come out of a sandbox: how they are read, compared and shown.

Invariants: what is read is made of None, bool, int, float, complex, str, bytes, list, tuple, set and dict themselves,
never of a subclass, so comparing it runs no code but Python's own; whatever the text is, reading it ends soon, with a
value or with `ValueError`; the same value is always shown by the same text.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import EllipsisType
from typing import Any, NamedTuple

from agent_envs.code.task import Literal

_DEEP = 60
_MANY_BITS = 4096
_LEAST_TEXT, _LEAST_KEYS = 4096, 256
"""Characters of a text and keys of a set or dictionary that are read whatever is expected."""
_ALIKE = 8
"""Keys of one hash that are read whatever is expected: to put n of them into a set takes n² comparisons."""


def decode(text: str, expected: Literal | EllipsisType = ...) -> Literal:
    """The value of what `agent_envs.code.driver` says; ValueError for any other text.

    What is so much larger than the ``expected`` value that it cannot be equal is not read, nor a set with more keys of
    one hash than that value has: a submission chooses its keys, and with such ones reading would take hours. Without
    an expected value nothing is bounded: only for a program that is trusted.
    """
    items, length = (len(text), 0) if isinstance(expected, EllipsisType) else _size(expected)
    if len(text) > max(_LEAST_TEXT, 300 * (items + length)):
        raise ValueError("a value too large")
    alike = len(text) if isinstance(expected, EllipsisType) else max(_ALIKE, *map(_alike, _keys(expected)), 0)
    try:
        node = json.loads(text, parse_int=_no_number, parse_float=_no_number, parse_constant=_no_number)
        return _decode(node, _DEEP, _Keys(max(_LEAST_KEYS, items), alike))
    except (ValueError, TypeError, OverflowError, RecursionError, KeyError) as error:
        raise ValueError(f"no plain value ({type(error).__name__})") from None


def _no_number(text: str) -> Any:
    raise ValueError("numbers stand in strings")


def _size(value: Literal) -> tuple[int, int]:
    """(number of values in a value, itself included; characters, bytes and hexadecimal digits in them)."""
    match value:
        case dict():
            parts = [part for pair in value.items() for part in pair]
        case list() | tuple() | set() | frozenset():
            parts = list(value)
        case str() | bytes():
            return 1, len(value)
        case int():
            return 1, value.bit_length() // 4
        case _:
            return 1, 0
    sizes = [_size(part) for part in parts]
    return 1 + sum(size[0] for size in sizes), sum(size[1] for size in sizes)


def _keys(value: Literal) -> Iterator[Iterable[Literal]]:
    """The keys of every set and dictionary in a value."""
    match value:
        case dict():
            yield value
            for part in value.values():
                yield from _keys(part)
        case set() | frozenset():
            yield value
        case list() | tuple():
            for part in value:
                yield from _keys(part)


def _alike(keys: Iterable[Literal]) -> int:
    """How many of the keys have the same hash, at most."""
    return max(Counter(map(hash, keys)).values(), default=0)


class _Keys(NamedTuple):
    """What is read of one set or dictionary."""

    most: int
    alike: int

    def check(self, keys: list[Literal]) -> list[Literal]:
        if _alike(keys) > self.alike:
            raise ValueError("keys of one hash")
        return keys


def _decode(node: Any, depth: int, keys: _Keys) -> Literal:
    if node is None or type(node) is bool:
        return node
    if type(node) is not list or not node or not depth:
        raise ValueError("no plain value")
    kind, *rest = node
    if kind in _PLAIN:
        return _PLAIN[kind](*rest)
    (items,) = rest
    if kind in ("S", "d") and len(items) > keys.most * (2 if kind == "d" else 1):
        raise ValueError("more keys than there can be")
    values = [_decode(item, depth - 1, keys) for item in items] if kind != "d" else []
    match kind:
        case "l":
            return values
        case "t":
            return tuple(values)
        case "S":
            return set(keys.check(values))
        case "d":
            if len(items) % 2:
                raise ValueError("a key without a value")
            flat = [_decode(item, depth - 1, keys) for item in items]
            return dict(zip(keys.check(flat[::2]), flat[1::2], strict=True))
    raise ValueError("no plain value")


_PLAIN: Mapping[str, Callable[..., Literal]] = {
    "i": lambda text: int(text, 16),
    "f": lambda text: float.fromhex(text),
    "c": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "s": lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    "b": bytes.fromhex,
}


def same(value: Literal, expected: Literal, tolerance: float = 0.0) -> bool:
    """Whether ``value == expected`` as Python compares plain values; numbers may differ by ``tolerance``."""
    if not tolerance:
        return bool(value == expected)
    if isinstance(expected, int | float | complex) and not isinstance(expected, bool):
        if not isinstance(value, int | float | complex) or isinstance(value, bool):
            return False
        try:
            return bool(value == expected) or abs(value - expected) <= tolerance
        except OverflowError:
            return False
    if isinstance(expected, list | tuple):
        alike = type(value) is type(expected) and len(value) == len(expected)
        return alike and all(same(one, other, tolerance) for one, other in zip(value, expected, strict=True))
    if isinstance(expected, dict):
        alike = isinstance(value, dict) and value.keys() == expected.keys()
        return alike and all(same(value[key], other, tolerance) for key, other in expected.items())
    return bool(value == expected)


def show(value: Literal, most: int = 80) -> str:
    """How Python writes the value, in one line; sets in order; what is longer than ``most`` is cut in the middle."""
    text = _show(value, most)
    half = most // 2 - 1
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


def _show(value: Literal, most: int) -> str:
    match value:
        case bool() | None:
            return repr(value)
        case int() if value.bit_length() > _MANY_BITS:
            return f"a number of {value.bit_length()} bits"
        case list():
            return f"[{', '.join(_show(item, most) for item in value)}]"
        case tuple():
            return f"({', '.join(_show(item, most) for item in value)}{',' if len(value) == 1 else ''})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(_show(item, most) for item in value))}}}" if value else "set()"
        case dict():
            return f"{{{', '.join(f'{_show(key, most)}: {_show(item, most)}' for key, item in value.items())}}}"
    # Lone surrogates, which a string may hold and a message may not, are written as Python writes them.
    return repr(value)
