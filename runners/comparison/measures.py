"""Measures of a run, with their titles.

Invariant: a figure is one number per run, or one per test task where tasks are played; what a run cannot tell is NaN.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runners.comparison.curves import LEARNING, History, area, area_between, reached
from runners.comparison.entrants import PlannedRun
from runners.statistics.intervals import Grid, Interval, over_seeds, pass_at_k
from runners.statistics.turns import FIRST_TOKENS

Figures = Mapping[str, Sequence[float]]
"""One run's figures by measure."""


@dataclass(frozen=True)
class Measure:
    """How a measure is called and written."""

    title: str
    form: str
    better: int
    """1 where more is better, -1 where less is, 0 where neither."""
    about: str


MEASURES = {
    "auc": Measure("area under the curve", ".3f", 1, (
        "mean of the sampled success of the training batches over environment steps, from 0 to the budget; each batch "
        "weighs the steps it took, the last one only those within the budget")),
    "auc_valid": Measure("area, validation tasks", ".3f", 1, (
        "mean over environment steps of the straight lines between the sampled evaluations on validation tasks; the "
        "first and the last of them hold on to the ends")),
    "auc_seconds": Measure("area over seconds", ".3f", 1, (
        "mean of the sampled success of the training batches over seconds of playing and learning, from 0 to the time "
        "that the fastest run took for the whole budget: equal wall time")),
    "auc_tokens": Measure("area over sampled tokens", ".3f", 1, (
        "the same over sampled tokens, from 0 to the tokens of the run that sampled fewest")),
    "final_sampled": Measure("final success, sampled", ".3f", 1, "share of test tasks solved by the last policy"),
    "final_greedy": Measure("final success, greedy", ".3f", 1, "the same, decoded greedily"),
    "steps_per_group": Measure("steps per group", ".2f", 0, (
        "environment steps (turns, tool calls) per group of episodes of one task, over the whole run")),
    "tokens_per_group": Measure("sampled tokens per group", ".1f", 0, "over the whole run"),
    "calls_per_group": Measure("tool calls per group", ".2f", -1, (
        "actions per group that ended no episode; mean over the updates")),
    "steps_per_episode": Measure("steps per episode", ".2f", 0, "environment steps, over the whole run"),
    "updates": Measure("updates", ".1f", 0, "updates that the budget of environment steps allowed"),
    "updates_to_plateau": Measure("updates to the plateau", ".1f", -1, (
        "updates until the mean of five training batches reaches the baseline's plateau, its mean success over the "
        "last tenth of the budget")),
    "steps_to_plateau": Measure("steps to the plateau", ".0f", -1, "the same in environment steps"),
    "learning_seconds": Measure("seconds of learning per update", ".3f", -1, (
        "old log-probabilities, labels, loss, gradient and step")),
    "playing_seconds": Measure("seconds of playing per update", ".3f", -1, "rollout, environments included"),
    "busy_seconds": Measure("seconds in all", ".0f", -1, "playing and learning, without evaluations"),
    **{f"entropy_rise_{k}": Measure(f"entropy after an observation, first {k} tokens", ".2f", 0, (
        f"mean entropy of the first {k} tokens after an observation as a multiple of that of the first turns; mean "
        "over the updates")) for k in FIRST_TOKENS},
}  # fmt: skip


def measured(pass_samples: int) -> list[str]:
    """The names of everything that is measured."""
    return [*MEASURES, *(f"pass@{k}" for k in ks(pass_samples))]


def ks(samples: int) -> list[int]:
    """The k of pass@k that this many samples allow: 1, 2, 4, 8, …"""
    return [2**i for i in range(20) if 2**i <= samples]


PLATEAU = 0.1
"""The plateau is the mean over this last share of the budget."""


def measure_of(key: str) -> Measure:
    """The measure of that name; pass@k is called by its name."""
    return MEASURES.get(key) or Measure(key, ".3f", 1, "")


@dataclass(frozen=True)
class Frame:
    """What all runs are measured with."""

    env_steps: int
    seconds: float
    """Seconds that the fastest run took."""
    tokens: float
    """Tokens of the run that sampled fewest."""
    plateau: float


def frame_of(histories: Mapping[str, Mapping[int, History]], baseline: str, env_steps: int) -> Frame:
    """The frame of a comparison. ``histories`` are by entrant and seed."""
    every = [history for mine in histories.values() for history in mine.values()]
    ends = [_late(history, env_steps) for history in histories[baseline].values()]
    last = {key: min(history.rows[-1][key] for history in every) for key in ("busy_seconds", "sampled_tokens")}
    return Frame(env_steps, last["busy_seconds"], last["sampled_tokens"], float(np.mean(ends)))


def _late(history: History, env_steps: int) -> float:
    whole, early = (
        share * area(history.column("env_steps"), history.column("success"), share * env_steps)
        for share in (1.0, 1 - PLATEAU)
    )
    return (whole - early) / PLATEAU


def figures_of(run: PlannedRun, history: History, frame: Frame, result: Mapping[str, Any]) -> dict[str, list[float]]:
    """Everything that is measured of one run; ``result`` is what its last policy did on test tasks."""
    success, steps = history.column("success"), history.column("env_steps")
    group, updates = run.settings.algorithm.sampling.group, len(history.rows)
    groups = updates * run.train.episodes / group + sum(row.get("resampled_tasks", 0.0) for row in history.rows)
    at = reached(steps, success, frame.plateau), reached(history.column("update"), success, frame.plateau)
    learning = [sum(row.get(part, 0.0) for part in LEARNING) for row in history.rows]
    one = {
        "auc": area(steps, success, frame.env_steps),
        "auc_valid": _number(area_between(*history.sampled, frame.env_steps)),
        "auc_seconds": area(history.column("busy_seconds"), success, frame.seconds),
        "auc_tokens": area(history.column("sampled_tokens"), success, frame.tokens),
        "steps_per_group": steps[-1] / groups,
        "tokens_per_group": history.rows[-1]["sampled_tokens"] / groups,
        "calls_per_group": history.mean("calls_per_task"),
        "steps_per_episode": steps[-1] / (groups * group),
        "updates": float(updates),
        "updates_to_plateau": _number(at[1]),
        "steps_to_plateau": _number(at[0]),
        "learning_seconds": float(np.mean(learning)),
        "playing_seconds": history.mean("seconds_rollout"),
        "busy_seconds": history.rows[-1]["busy_seconds"],
        **{f"entropy_rise_{k}": history.mean(f"entropy_rise_{k}") for k in FIRST_TOKENS},
    }
    return {key: [value] for key, value in one.items()} | task_figures(result)


def task_figures(result: Mapping[str, Any]) -> dict[str, list[float]]:
    """The figures of a file that ``play_test_tasks.py`` wrote, one number per task."""
    found = {f"final_{mode}": [_number(x) for x in result[mode]] for mode in ("sampled", "greedy")}
    if "pass" in result:
        right_of = result["pass"]["right_of"]
        for k in ks(max(n for _, n in right_of)):
            found[f"pass@{k}"] = [pass_at_k(n, right, k) if n >= k else math.nan for right, n in right_of]
    return found


def read_result(file: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return result


def grid(figures: Mapping[int, Figures], key: str, seeds: Sequence[int]) -> Grid:
    """(seeds, tasks) of one measure of one entrant."""
    return np.asarray([figures[seed][key] for seed in seeds], dtype=np.float64)


def interval(*grids: Grid, combine: Any = lambda mean: mean) -> Interval | None:
    """`over_seeds`, or None where a run cannot tell the measure or the interval has no bounds."""
    if any(np.isnan(one).all(axis=1).any() for one in grids):
        return None
    return over_seeds(grids, combine)


def _number(x: float | None) -> float:
    return math.nan if x is None else float(x)
