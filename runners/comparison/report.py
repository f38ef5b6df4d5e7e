"""One report of a comparison: Markdown, HTML and CSV.

Invariant: every figure in the report is in ``result.json``; an interval is over seeds, and over tasks where tasks were
played; differences are taken between runs of the same seed.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runners.comparison.claims import Claim, Judged, judge
from runners.comparison.curves import AXES, History, read_history
from runners.comparison.drawings import BY_TURN
from runners.comparison.markdown import markdown
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
from runners.comparison.page import page
from runners.comparison.plan import PlannedRun
from runners.comparison.runs import result_file
from runners.comparison.tuning import Tried
from runners.config import dump_json
from runners.credit import WHEN
from runners.evaluation.credit_quality import FIGURES
from runners.intervals import Interval, bootstrap
from runners.training.report import versions


@dataclass(frozen=True)
class Result:
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
) -> Result:
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
    return Result(
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


def write_report(
    folder: Path,
    baseline: str,
    runs: Sequence[PlannedRun],
    env_steps: int,
    tried: Sequence[Tried],
    claims: Sequence[Claim],
    settings: Mapping[str, Any],
) -> Path:
    """Writes the report of finished runs into ``folder``; returns the page that a person opens first."""
    result = gather(folder, baseline, runs, env_steps, tried, claims, settings)
    (folder / "result.json").write_text(dump_json(plain_result(result)), "utf-8")
    write_csv(folder / "runs.csv", runs_table(result, runs))
    write_csv(folder / "curves.csv", curves_table(result))
    (folder / "report.md").write_text(markdown(result), "utf-8")
    (folder / "report.html").write_text(page(result), "utf-8")
    return folder / "report.html"


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


def plain_result(result: Result) -> dict[str, Any]:
    """Everything but the curves, for JSON."""
    return {
        "baseline": result.baseline,
        "seeds": list(result.seeds),
        "env_steps": result.env_steps,
        "means": result.means,
        "differences": result.differences,
        "start": result.start,
        "claims": [{**asdict(one.claim), "value": one.value, "verdict": one.verdict.value} for one in result.judged],
        "tuning": [asdict(one) for one in result.tried],
        "credit": result.credit,
        "settings": result.settings,
        "versions": versions(),
    }


Row = dict[str, Any]


def runs_table(result: Result, runs: Sequence[PlannedRun]) -> list[Row]:
    """One row per run."""
    rows = []
    for run in runs:
        figures = result.figures[run.entrant][run.seed]
        means = {
            key: float(np.nanmean(x)) if np.isfinite(x := np.asarray(figures[key])).any() else "" for key in result.keys
        }
        rows.append({"entrant": run.entrant, "algo": run.train.algo, "seed": run.seed, **means})
    return rows


def curves_table(result: Result) -> list[Row]:
    """One row per training batch and per evaluation on validation tasks."""
    rows: list[Row] = []
    for name, mine in result.histories.items():
        for seed, history in mine.items():
            who = {"entrant": name, "seed": seed}
            rows += [
                who | {"of": "training batch"} | {key: row[key] for key in AXES} | {"success": row["success"]}
                for row in history.rows
            ]
            rows += [
                who | {"of": f"validation, {mode}", "env_steps": entry["env_steps"], "success": entry[mode]}
                for entry in history.valid
                for mode in ("sampled", "greedy")
                if mode in entry
            ]
    return rows


def write_csv(file: Path, rows: Iterable[Row]) -> None:
    """A table; its columns are the keys of all rows. Raises OSError."""
    rows = list(rows)
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)), restval="")
        table.writeheader()
        table.writerows(rows)
