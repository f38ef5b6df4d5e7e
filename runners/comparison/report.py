"""One report of a comparison: Markdown, HTML, pictures and CSV.

Invariant: every figure in the report is in ``result.json``; an interval is over seeds, and over tasks where tasks were
played; differences are taken between runs of the same seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from runners.command_line.plain import dump_json
from runners.comparison.claims import Claim
from runners.comparison.curves import AXES
from runners.comparison.entrants import PlannedRun
from runners.comparison.findings import Findings, gather
from runners.comparison.markdown import markdown
from runners.comparison.page import page
from runners.comparison.pictures import draw
from runners.comparison.tuning import Tried
from runners.reporting.tables import write_csv
from runners.training.report import versions


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
    text = markdown(result, draw(result, folder))
    (folder / "report.md").write_text(text, "utf-8")
    (folder / "report.html").write_text(page(text, folder), "utf-8")
    return folder / "report.html"


def plain_result(result: Findings) -> dict[str, Any]:
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


def runs_table(result: Findings, runs: Sequence[PlannedRun]) -> list[Row]:
    """One row per run."""
    rows = []
    for run in runs:
        figures = result.figures[run.entrant][run.seed]
        means = {
            key: float(np.nanmean(x)) if np.isfinite(x := np.asarray(figures[key])).any() else "" for key in result.keys
        }
        rows.append({"entrant": run.entrant, "algo": run.train.algo, "seed": run.seed, **means})
    return rows


def curves_table(result: Findings) -> list[Row]:
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
