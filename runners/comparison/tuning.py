"""Choosing each entrant's settings: as many tries for everyone, judged on validation tasks.

Invariant: tuning plays with seeds that no compared run has, and sees validation tasks only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.command_line.errors import UserError
from runners.comparison.curves import History, area_between, read_history, total
from runners.comparison.entrants import Values
from runners.statistics.intervals import mean

LEAST = 6
"""Settings that each entrant must at least be tried with."""


@dataclass(frozen=True)
class Tried:
    """One try of one entrant."""

    entrant: str
    settings: Values
    area: float
    """Area under the curve of sampled success on validation tasks, in the mean over the tuning's seeds."""
    chosen: bool
    wall_seconds: float
    """Of its runs, on the clock."""
    processor_seconds: float | None
    """The same on the processor; None for runs of an earlier version."""


def candidates(tune: Any, entrants: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The settings to try, by entrant; those under ``all`` are for everyone without a list of its own.

    Raises UserError unless everyone gets the same number of them, at least six.
    """
    if not isinstance(tune, Mapping):
        raise UserError("tune: must hold lists of settings by entrant, or under `all`")
    if unknown := sorted(set(tune) - {*entrants, "all"}):
        raise UserError(f"tune: there is no entrant {unknown[0]!r}; there are {', '.join(entrants)}")
    result = {name: tune.get(name, tune.get("all", [])) for name in entrants}
    for name, settings in result.items():
        if not isinstance(settings, list) or not all(isinstance(one, dict) for one in settings):
            raise UserError(f"tune: {name} needs a list of settings")
    counts = {name: len(settings) for name, settings in result.items()}
    if len(set(counts.values())) > 1 or min(counts.values()) < LEAST:
        counted = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise UserError(f"tune: every entrant needs the same number of settings, at least {LEAST}; here: {counted}")
    return result


def judge(
    settings: Mapping[str, Sequence[Values]], folders: Mapping[str, Sequence[Sequence[Path]]], limit: int
) -> list[Tried]:
    """Every try with its area, which is the mean over the run folders of its seeds; of each entrant the best is chosen,
    the first of equals. Raises UserError."""
    result = []
    for name, mine in settings.items():
        told = [[read_history(folder) for folder in seeds] for seeds in folders[name]]
        areas = [
            mean([_area(*one, limit) for one in zip(seeds, histories, strict=True)])
            for seeds, histories in zip(folders[name], told, strict=True)
        ]
        best = max(range(len(areas)), key=lambda i: (areas[i], -i))
        result += [
            Tried(
                *(name, one, area, i == best),
                sum(history.wall_seconds for history in seeds),
                total([history.processor_seconds for history in seeds]),
            )
            for i, (one, area, seeds) in enumerate(zip(mine, areas, told, strict=True))
        ]
    return result


def _area(folder: Path, history: History, limit: int) -> float:
    if (area := area_between(*history.sampled, limit)) is None:
        raise UserError(f"{folder} was never evaluated on validation tasks: lower --eval-every")
    return area
