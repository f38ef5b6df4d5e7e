"""Findings of a comparison: every figure of its report.

Invariant: an interval is over seeds, and over tasks where tasks were played; differences are taken between runs of the
same seed.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from runners.comparison.checklist import Checklist, checklist
from runners.comparison.claims import Judged, judge_all
from runners.comparison.comparison_settings import ComparisonPlan
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
from runners.comparison.runs import CREDIT, credit_folder, result_file
from runners.comparison.trajectories import Trajectories, read_trajectories
from runners.comparison.tuning import Tried
from runners.crediting.quality import FIGURES, WHEN
from runners.reporting.progress import evaluating
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
    credit_played: Mapping[str, Mapping[str, Mapping[str, Interval | None]]]
    """The same against the policy's own values."""
    credit_by_turn: Mapping[str, Mapping[str, Mapping[str, tuple[list[float], list[float]]]]]
    """The same turn by turn: (turns, means over seeds), up to the first turn that some seed cannot tell."""
    checklist: Checklist
    settings: Mapping[str, Any]


def gather(plan: ComparisonPlan, runs: Sequence[PlannedRun], tried: Sequence[Tried], console: Console) -> Findings:
    """Reads all runs and works out every figure."""
    compare, folder, baseline = plan.compare, plan.compare.folder, plan.baseline
    names, seeds = list(dict.fromkeys(run.entrant for run in runs)), sorted({run.seed for run in runs})
    histories: dict[str, dict[int, History]] = {name: {} for name in names}
    for run in runs:
        histories[run.entrant][run.seed] = read_history(run.folder, compare.clock)
    frame = frame_of(histories, baseline, compare.env_steps)
    figures: dict[str, dict[int, Figures]] = {name: {} for name in names}
    for run in runs:
        history = histories[run.entrant][run.seed]
        figures[run.entrant][run.seed] = figures_of(run, history, frame, read_result(result_file(run)))
    known = set(figures[baseline][seeds[0]])
    keys = [key for key in measured(1 << 19) if key in known]
    grids = {key: {name: grid(figures[name], key, seeds) for name in names} for key in keys}
    credit = read_credit(folder, seeds) if compare.credit_episodes else {}
    played = read_credit(folder, seeds, compare.credit_continuations) if compare.credit_continuations else {}
    start = {
        key: bootstrap(values) for key, values in task_figures(read_result(folder / "runs" / "start.test.json")).items()
    }
    return Findings(
        baseline,
        seeds,
        compare.env_steps,
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
        judge_all(plan.claims, figures),
        tried,
        histories,
        over_all_turns(credit),
        over_all_turns(played),
        turn_by_turn(credit),
        checklist(plan, runs, histories, tried, _played(runs, console)),
        {
            "compare": asdict(compare),
            "tuning_seeds": list(compare.tuning_seeds),
            "common": plan.common,
            "entrants": plan.own,
        },
    )


def _played(runs: Sequence[PlannedRun], console: Console) -> dict[str, Trajectories]:
    """What each entrant's episodes are like."""
    folders: dict[str, list[Path]] = {}
    for run in runs:
        folders.setdefault(run.entrant, []).append(run.folder)
    with evaluating(console, len(runs), doing="reading episodes") as done:

        def told(mine: list[Path]) -> Iterator[Path]:
            for folder in mine:
                yield folder
                done()

        return {name: read_trajectories(told(mine)) for name, mine in folders.items()}


Scored = Mapping[str, Sequence[Mapping[str, Any]]]
"""By policy one entry a seed: what ``credit.json`` says of each entrant."""


def read_credit(comparison: Path, seeds: Sequence[int], continuations: int = 0) -> Scored:
    places = {seed: credit_folder(comparison, seed, continuations) / CREDIT for seed in seeds}
    read = {seed: json.loads(place.read_text("utf-8")) for seed, place in places.items()}
    return {
        when: [{n.removesuffix(f"-{s}"): x for n, x in one[when]["scorers"].items()} for s, one in read.items()]
        for when in WHEN
    }


def _each(scored: Scored, keys: Iterable[str], over: Callable[[list[Any], str], Any]) -> dict[str, Any]:
    """``over`` of one entrant's seeds and a figure, by policy, figure and entrant."""
    return {
        when: {key: {name: over([one[name] for one in of_seed], key) for name in of_seed[0]} for key in keys}
        for when, of_seed in scored.items()
    }


def over_all_turns(scored: Scored) -> dict[str, dict[str, dict[str, Interval | None]]]:
    """Every figure of credit with its interval over seeds; None where some seed cannot tell."""

    def over(seeds: list[Any], key: str) -> Interval | None:
        values = [one["figures"][key] for one in seeds]
        return interval(np.asarray([[math.nan if value is None else value["mean"]] for value in values]))

    return _each(scored, FIGURES, over)


def turn_by_turn(scored: Scored) -> dict[str, dict[str, dict[str, tuple[list[float], list[float]]]]]:
    """Means over seeds at each place in the episode, as long as every seed can tell."""

    def over(seeds: list[Any], key: str) -> tuple[list[float], list[float]]:
        columns = zip(*([row[key] for row in one["by_turn"]] for one in seeds), strict=False)
        means = [float(np.mean(column)) for column in takewhile(lambda column: None not in column, columns)]
        return [float(turn) for turn in range(len(means))], means

    return _each(scored, BY_TURN, over)
