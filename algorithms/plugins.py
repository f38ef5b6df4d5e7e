"""Algorithms of other packages.

Invariant: what comes back can be used as one of ours; whatever is wrong with it is said in one line.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib.metadata import EntryPoint
from typing import Any

from algorithms.base import Algorithm


def load(point: EntryPoint) -> type[Algorithm[Any]]:
    """The class that an entry point names.

    Raises ValueError when it cannot be imported, or is not a frozen dataclass with defaults that derives from Algorithm
    and has ``credit`` and ``loss``.
    """
    package = f" of the package {point.dist.name}" if point.dist else ""
    who = f"algorithm {point.name!r} ({point.value}{package})"
    try:
        found = point.load()
    except Exception as error:  # another package's module may raise anything while it is imported
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{who} cannot be imported ({said}): mend or uninstall it") from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"{who} is not a subclass of algorithms.Algorithm")
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise ValueError(f"{who} is not a frozen dataclass: write @dataclass(frozen=True) above it")
    if found.__abstractmethods__:
        raise ValueError(f"{who} lacks {' and '.join(sorted(found.__abstractmethods__))}")
    for field in fields(found):  # type: ignore[arg-type]
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{who} has no default for {field.name}: every setting needs one")
    return found
