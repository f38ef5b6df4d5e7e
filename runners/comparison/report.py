"""One report of a comparison: Markdown, HTML, pictures and CSV.

Invariant: every figure in the report is in ``result.json``; an interval is over seeds, and over tasks where tasks were
played; differences are taken between runs of the same seed. The page runs no script and fetches nothing; HTML in a text
is shown as text.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from markdown_it import MarkdownIt

from runners.command_line.plain import dump_json
from runners.comparison.curves import AXES
from runners.comparison.entrants import PlannedRun
from runners.comparison.findings import Findings
from runners.comparison.markdown import markdown
from runners.comparison.pictures import draw
from runners.reporting.tables import write_csv
from runners.training.report import versions


def write_report(folder: Path, result: Findings, runs: Sequence[PlannedRun]) -> Path:
    """Writes the report of finished runs into ``folder``; returns the page that a person opens first."""
    (folder / "result.json").write_text(dump_json(plain_result(result)), "utf-8")
    write_csv(folder / "runs.csv", runs_table(result, runs))
    write_csv(folder / "curves.csv", curves_table(result))
    text = markdown(result, draw(result, folder))
    (folder / "report.md").write_text(text, "utf-8")
    (folder / "report.html").write_text(page(text, folder), "utf-8")
    return folder / "report.html"


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def page(markdown: str, folder: Path) -> str:
    """The page; its pictures are SVG files in ``folder``."""

    def image(_: Any, tokens: Any, at: int, *__: Any) -> str:
        data = b64encode((folder / tokens[at].attrs["src"]).read_bytes()).decode()
        caption = escape(tokens[at].content)
        return f"<span><img src='data:image/svg+xml;base64,{data}' alt='{caption}'><small>{caption}</small></span>"

    text = MarkdownIt("commonmark", {"html": False}).enable("table")
    text.add_render_rule("image", image)
    style = files("runners.comparison").joinpath("page.css").read_text("utf-8")
    return PAGE.format(title="Comparison", style=style, body=text.render(markdown))


def plain_result(result: Findings) -> dict[str, Any]:
    """Everything but the curves, for JSON."""
    return {
        "baseline": result.baseline,
        "seeds": list(result.seeds),
        "env_steps": result.env_steps,
        "means": result.means,
        "differences": result.differences,
        "start": result.start,
        "claims": [asdict(one.claim) | one.plain() for one in result.judged],
        "tuning": [asdict(one) for one in result.tried],
        "credit": result.credit,
        "credit_played": result.credit_played,
        "checklist": asdict(result.checklist),
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
