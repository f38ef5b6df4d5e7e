"""Findings of a comparison: every figure of its report.

Invariant: an interval is over seeds, and over tasks where tasks were played; differences are taken between runs of the
same seed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runners.comparison.claims import Claim, Judged, judge
from runners.comparison.curves import History, read_history
from runners.comparison.entrants import PlannedRun
from runners.comparison.measures import (
    Figures,
    figures_of,
    frame_of,
    grid,
    interval,
    measured,
    read_result,
    task_figures,
)
from runners.comparison.runs import result_file
from runners.comparison.tuning import Tried
from runners.crediting.quality import FIGURES, WHEN
from runners.statistics.intervals import Interval, bootstrap

BY_TURN = ("auc", "value_solvable")
"""Figures of credit that are drawn turn by turn."""


@dataclass(frozen=True)
class Findings:
    """All that the report says."""

    baseline: str
    seeds: Sequence[int]
    env_steps: int
    figures: Mapping[str, Mapping[int, Figures]]
    """By entrant and seed."""
    keys: Sequence[str]
    means: Mapping[str, Mapping[str, Interval | None]]
    """By measure and entrant; None where a run cannot tell."""
    differences: Mapping[str, Mapping[str, Interval | None]]
    """The same less the baseline, in pairs of seeds and tasks."""
    start: Mapping[str, Interval]
    """The policy that all begin from, on test tasks; intervals over tasks."""
    judged: Sequence[Judged]
    tried: Sequence[Tried]
    histories: Mapping[str, Mapping[int, History]]
    credit: Mapping[str, Mapping[str, Mapping[str, Interval | None]]]
    """By policy (base, trained), figure and entrant; empty where it was not asked for."""
    credit_by_turn: Mapping[str, Mapping[str, Mapping[str, tuple[list[float], list[float]]]]]
    """The same turn by turn: (turns, means over seeds), up to the first turn that some seed cannot tell."""
    settings: Mapping[str, Any]


def gather(
    folder: Path,
    baseline: str,
    runs: Sequence[PlannedRun],
    env_steps: int,
    tried: Sequence[Tried],
    claims: Sequence[Claim],
    settings: Mapping[str, Any],
) -> Findings:
    """Reads all runs and works out every figure."""
    names, seeds = list(dict.fromkeys(run.entrant for run in runs)), sorted({run.seed for run in runs})
    histories: dict[str, dict[int, History]] = {name: {} for name in names}
    for run in runs:
        histories[run.entrant][run.seed] = read_history(run.folder)
    frame = frame_of(histories, baseline, env_steps)
    figures: dict[str, dict[int, Figures]] = {name: {} for name in names}
    for run in runs:
        history = histories[run.entrant][run.seed]
        figures[run.entrant][run.seed] = figures_of(run, history, frame, read_result(result_file(run)))
    known = set(figures[baseline][seeds[0]])
    keys = [key for key in measured(1 << 19) if key in known]
    grids = {key: {name: grid(figures[name], key, seeds) for name in names} for key in keys}
    credit = read_credit(folder / "credit", seeds) if settings["compare"]["credit_episodes"] else {}
    start = {
        key: bootstrap([x for x in values if np.isfinite(x)])
        for key, values in task_figures(read_result(folder / "runs" / "start.test.json")).items()
    }
    return Findings(
        baseline,
        seeds,
        env_steps,
        figures,
        keys,
        {key: {name: interval(grids[key][name]) for name in names} for key in keys},
        {
            key: {
                name: interval(grids[key][name], grids[key][baseline], combine=lambda a, b: a - b)
                for name in names
                if name != baseline
            }
            for key in keys
        },
        start,
        [judge(claim, figures) for claim in claims],
        tried,
        histories,
        over_all_turns(credit),
        turn_by_turn(credit),
        settings,
    )


Scored = Mapping[str, Sequence[Mapping[str, Any]]]
"""By policy one entry a seed: what ``credit.json`` says of each entrant."""


def read_credit(folder: Path, seeds: Sequence[int]) -> Scored:
    read = {seed: json.loads((folder / str(seed) / "credit.json").read_text("utf-8")) for seed in seeds}
    return {
        when: [{n.removesuffix(f"-{s}"): x for n, x in one[when]["scorers"].items()} for s, one in read.items()]
        for when in WHEN
    }


def over_all_turns(scored: Scored) -> dict[str, dict[str, dict[str, Interval | None]]]:
    """Every figure of credit with its interval over seeds; None where some seed cannot tell."""

    def over(of_seed: Sequence[Mapping[str, Any]], name: str, key: str) -> Interval | None:
        values = [one[name]["figures"][key] for one in of_seed]
        return interval(np.asarray([[math.nan if value is None else value["mean"]] for value in values]))

    return {
        when: {key: {name: over(of_seed, name, key) for name in of_seed[0]} for key in FIGURES}
        for when, of_seed in scored.items()
    }


def turn_by_turn(scored: Scored) -> dict[str, dict[str, dict[str, tuple[list[float], list[float]]]]]:
    """Means over seeds at each place in the episode."""

    def over(of_seed: Sequence[Mapping[str, Any]], name: str, key: str) -> tuple[list[float], list[float]]:
        columns = zip(*([row[key] for row in one[name]["by_turn"]] for one in of_seed), strict=False)
        means = []
        for column in columns:
            if None in column:
                break
            means.append(float(np.mean(column)))
        return [float(turn) for turn in range(len(means))], means

    return {
        when: {key: {name: over(of_seed, name, key) for name in of_seed[0]} for key in BY_TURN}
        for when, of_seed in scored.items()
    }
