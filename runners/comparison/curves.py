"""Learning curves of a run, read from its metrics: success against steps, tokens, updates and seconds.

Invariant: pure functions of recorded numbers. A training batch is played at one policy, so its success stands for the
whole stretch between the end of the batch before it and its own end.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from runners.command_line.errors import UserError

AXES = {
    "env_steps": "environment steps",
    "sampled_tokens": "sampled tokens",
    "update": "updates",
    "busy_seconds": "seconds of playing and learning",
}
"""What success is drawn against. The seconds are the sum of rollout, old log-probabilities and update, without what a
control has for nothing."""
LEARNING = ("seconds_judge", "seconds_continuations", "seconds_forward", "seconds_update")
BUSY = ("seconds_rollout", *LEARNING)


class Clock(StrEnum):
    """What a comparison's seconds are: of the clock on the wall, or of each run's process on the processor."""

    WALL = "wall"
    PROCESSOR = "processor"


@dataclass(frozen=True)
class History:
    """A run's numbers: one row per update, and the evaluations on validation tasks."""

    rows: Sequence[Mapping[str, float]]
    """Metrics of every update in which an episode ended, with ``busy_seconds``, which leaves out evaluations,
    checkpoints and the start."""
    valid: Sequence[Mapping[str, float]]
    """{"env_steps", "sampled", "greedy"}: mean success after these steps."""

    @property
    def sampled(self) -> tuple[list[float], list[float]]:
        """(environment steps, success) of the sampled evaluations on validation tasks."""
        told = [entry for entry in self.valid if "sampled" in entry]
        return [entry["env_steps"] for entry in told], [entry["sampled"] for entry in told]

    @property
    def wall_seconds(self) -> float:
        """Seconds of playing and learning, with what a control has for nothing."""
        return sum(row.get(part, 0.0) for row in self.rows for part in BUSY)

    @property
    def processor_seconds(self) -> float | None:
        """The same of the run's own process on the processor; None for a run of an earlier version."""
        return total([row.get("seconds_processor") for row in self.rows])

    def column(self, key: str) -> list[float]:
        return [float(row[key]) for row in self.rows]

    def mean(self, key: str) -> float:
        """Over the updates that tell it; NaN where none does."""
        known = [float(row[key]) for row in self.rows if row.get(key) is not None]
        return float(np.mean(known)) if known else math.nan


def total(parts: Sequence[float | None]) -> float | None:
    """Their sum; None where one of them is not known."""
    known = [x for x in parts if x is not None]
    return sum(known) if len(known) == len(parts) else None


def read_history(folder: Path, clock: Clock = Clock.WALL) -> History:
    """The history of a run folder, finished or not. Raises UserError for one that has not the seconds of this clock."""
    processor = clock is Clock.PROCESSOR
    parts = ("seconds_processor",) if processor else BUSY
    free = "uncounted_processor" if processor else "uncounted_seconds"
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    rows: list[Mapping[str, float]] = []
    busy, valid = 0.0, dict[int, dict[str, Any]]()
    for entry in entries:
        if entry["kind"] == "update":
            if processor and parts[0] not in entry:
                raise UserError(f"{folder} is a run of an earlier version, without processor seconds: --clock wall")
            busy += sum(entry.get(part, 0.0) for part in parts) - entry.get(free, 0.0)
            if entry["success"] is None:  # every episode broke
                continue
            rows.append({key: value for key, value in entry.items() if key != "kind"} | {"busy_seconds": busy})
        elif entry["split"] == "valid":
            at = valid.setdefault(entry["update"], {"env_steps": rows[-1]["env_steps"] if rows else 0.0})
            at[entry["mode"]] = entry["mean"]
    return History(rows, list(valid.values()))


def area(ends: Sequence[float], success: Sequence[float], limit: float) -> float:
    """Mean of the success of training batches over 0..limit, each batch weighing what it takes of that stretch.

    ``ends`` are where the batches end, rising. After the last one its success holds on. Raises ValueError for no batch.
    """
    if not ends or limit <= 0:
        raise ValueError("an area needs a batch and a limit above 0")
    edges = np.minimum([0.0, *ends], limit)
    widths = np.diff(edges)
    widths[-1] += limit - edges[-1]
    return float(np.dot(widths, success) / limit)


def area_between(at: Sequence[float], success: Sequence[float], limit: float) -> float | None:
    """Mean over 0..limit of the line through evaluations (trapezoids); the first and the last hold on outside.

    None where nothing was evaluated.
    """
    if not at:
        return None
    inner = sorted({x for x in at if 0 < x < limit} | {0.0, float(limit)})
    heights = np.interp(inner, at, success)
    return float(
        sum((b - a) * (p + q) / 2 for (a, b), (p, q) in zip(pairwise(inner), pairwise(heights), strict=True)) / limit
    )


def binned(ends: Sequence[float], success: Sequence[float], limit: float, bins: int) -> list[float]:
    """Mean success in each of ``bins`` equal stretches of 0..limit, weighed as in ``area``; NaN after the last one."""
    edges_B = np.linspace(0, limit, bins + 1)
    sums_N = np.concatenate([[0.0], np.cumsum(np.diff([0.0, *ends]) * np.asarray(success))])
    reach_B = np.minimum(edges_B, ends[-1])
    upto_B = np.interp(reach_B, [0.0, *ends], sums_N)
    widths_B = np.diff(reach_B)
    seen_B = widths_B > 0.5 * np.diff(edges_B)
    return np.where(seen_B, np.diff(upto_B) / np.where(seen_B, widths_B, 1), np.nan).tolist()


def reached(ends: Sequence[float], success: Sequence[float], height: float, window: int = 5) -> float | None:
    """Where the mean success of the newest ``window`` batches first is at least ``height``; None if it never is."""
    for i in range(min(window, len(success)), len(success) + 1):
        if np.mean(success[i - min(window, len(success)) : i]) >= height:
            return float(ends[i - 1])
    return None
