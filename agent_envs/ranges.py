"""Ranges of settings: checked in one place, refused in the same words."""

from collections.abc import Sequence
from math import inf


def check_ranges(
    settings: object, error: type[ValueError] = ValueError, who: str = "", /, **bounds: float | tuple[float, float]
) -> None:
    """Raises ``error`` for the first field out of bounds: (least, most), both allowed, or the least alone.

    ``who`` begins the message.
    """
    for name, bound in bounds.items():
        low, high = bound if isinstance(bound, tuple) else (bound, inf)
        if not low <= getattr(settings, name) <= high:
            rule = f"from {low} to {high}" if high < inf else f"at least {low}"
            raise error(f"{who}{name} must be {rule}, not {getattr(settings, name)}")


def check_above_0(settings: object, *names: str) -> None:
    """Raises ValueError unless these fields are above 0 and finite."""
    for name in names:
        if not 0 < getattr(settings, name) < inf:
            raise ValueError(f"{name} must be above 0 and finite, not {getattr(settings, name)}")


def check_share(settings: object, error: type[ValueError], who: str, name: str) -> None:
    """Raises ``error`` unless the field lies between 0 and 1, neither allowed."""
    if not 0 < getattr(settings, name) < 1:
        raise error(f"{who}{name} must lie between 0 and 1, not {getattr(settings, name)}")


def check_name(settings: object, name: str, known: Sequence[str]) -> None:
    """Raises ValueError unless the field is one of the ``known`` names."""
    if getattr(settings, name) not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {getattr(settings, name)!r}")
