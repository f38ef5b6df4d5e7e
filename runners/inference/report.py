"""The results of agents that use scores: table, Markdown, CSV and one picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from runners.command_line.errors import UserError
from runners.command_line.plain import plain
from runners.inference.program import StudyResult
from runners.inference.settings import Agent
from runners.inference.success_by_tokens import BASELINES, Row, rows_of
from runners.run_folder.folder import write_whole
from runners.statistics.intervals import Interval

COLUMNS = ("agent", "scorer", "budget", "success", "tokens", "value tokens", *(f"over {b}" for b in BASELINES))
WIDTH = 120
"""Characters that the table needs."""
STOPS = {
    "failing_saved": "tokens of failing episodes saved",
    "tokens_saved": "of all tokens saved",
    "failing_stopped": "failing episodes given up",
    "success_lost": "success lost",
}


def cells(row: Row) -> list[str]:
    """A row of the table as text."""
    over = [row.over.get(name) for name in BASELINES]
    return [
        row.agent,
        row.scorer,
        str(row.budget),
        str(row.success),
        f"{row.tokens.mean:.1f} [{row.tokens.low:.1f}, {row.tokens.high:.1f}]",
        f"{row.value_tokens:.1f}",
        *("" if x is None else f"{x.mean:+.3f} [{x.low:+.3f}, {x.high:+.3f}]" for x in over),
    ]


def stop_cells(stop: dict[str, Any]) -> list[str]:
    figures: dict[str, Interval] = stop["figures"]
    threshold = f"{stop['threshold']:.3f} ({stop['rule']})"
    return [stop["scorer"], threshold, *(str(figures[key]) if key in figures else "" for key in STOPS)]


def tables(found: StudyResult) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """(title, headings, rows)."""
    out: list[tuple[str, Sequence[str], list[list[str]]]] = [
        (
            "success and sampled tokens per task, tokens read for values, 95 % intervals over tasks",
            COLUMNS,
            list(map(cells, rows_of(found.points))),
        )
    ]
    if found.stops:
        headings = ("scorer", "threshold (rule)", *STOPS.values())
        out.append(("early stop, chosen on validation tasks", headings, list(map(stop_cells, found.stops))))
    return out


def show(found: StudyResult, console: Console) -> None:
    # Figures that are cut where a line ends tell nothing.
    wide = console if console.width >= WIDTH else Console(file=console.file, width=WIDTH)
    for title, headings, rows in tables(found):
        table = Table(title=title, title_justify="left")
        for i, name in enumerate(headings):
            table.add_column(name, justify="left" if i < 2 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(cell.replace(" [", "\n\\[") for cell in row))
        wide.print(table)
    for kind, weight in found.weights.items():
        console.print(f"{kind}: weight of the log-probability {weight:.4g}", highlight=False)


def markdown(found: StudyResult) -> str:
    """The tables for a page."""
    parts = []
    for title, headings, rows in tables(found):
        lines = [f"{title}:", "", f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
        parts.append("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]))
    return "\n\n".join(parts) + "\n"


def as_json(found: StudyResult) -> dict[str, Any]:
    """Every figure as plain values."""
    return {"rows": plain(rows_of(found.points)), "early_stop": plain(found.stops), "weights": plain(found.weights)}


def as_csv(found: StudyResult) -> str:
    """One row per scorer and budget."""
    names = ("success", "tokens", *(f"over_{name}" for name in BASELINES))
    ends = ("mean", "low", "high")
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["agent", "scorer", "budget", "tasks", "value_tokens", *(f"{n}_{e}" for n in names for e in ends)])
    for row in rows_of(found.points):
        told = [row.success, row.tokens, *(row.over.get(name) for name in BASELINES)]
        figures = [("", "", "") if x is None else (x.mean, x.low, x.high) for x in told]
        table.writerow(
            [row.agent, row.scorer, row.budget, row.tasks, row.value_tokens, *(x for three in figures for x in three)]
        )
    return file.getvalue()


def draw(found: StudyResult, title: str, path: Path) -> None:
    """Success against sampled tokens: a panel for each agent, a line for each scorer, and the one episode in all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = rows_of(found.points)
    alone = [row for row in rows if row.scorer == "none"]
    agents = list(dict.fromkeys(row.agent for row in rows if row.scorer != "none")) or [Agent.REACT]
    figure = Figure(figsize=(0.5 + 6.5 * len(agents), 5), layout="constrained")
    FigureCanvasAgg(figure)
    # A scorer has one colour in all panels.
    colours = {scorer: f"C{i}" for i, scorer in enumerate(dict.fromkeys(row.scorer for row in rows))}
    for axes, agent in zip(figure.subplots(1, len(agents), squeeze=False)[0], agents, strict=True):
        mine = [*alone, *(row for row in rows if row.agent == agent and row.scorer != "none")]
        for scorer in dict.fromkeys(row.scorer for row in mine):
            _curve(axes, [row for row in mine if row.scorer == scorer], colours[scorer])
        named = f"{title}: {agent}" if len(agents) > 1 else title
        axes.set(xlabel="sampled tokens per task", ylabel="success", ylim=(0, 1), title=named)
        axes.grid(alpha=0.3)
        # Below, where no curve runs through it.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=4, frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)


def _curve(axes: Any, rows: Sequence[Row], colour: str) -> None:
    rows = sorted(rows, key=lambda row: row.tokens.mean)
    y = [row.success.mean for row in rows]
    error = [
        [row.success.mean - row.success.low for row in rows],
        [row.success.high - row.success.mean for row in rows],
    ]
    label = "one episode" if rows[0].scorer == "none" else rows[0].scorer
    x = [row.tokens.mean for row in rows]
    axes.errorbar(x, y, yerr=error, marker="o", ms=4, capsize=3, label=label, color=colour)


def write(found: StudyResult, title: str, out: Path) -> None:
    """The files beside the JSON of ``out``: .md, .csv and .png. Raises UserError."""
    try:
        write_whole(out.with_suffix(".md"), markdown(found))
        write_whole(out.with_suffix(".csv"), as_csv(found))
        draw(found, title, out.with_suffix(".png"))
    except OSError as error:
        raise UserError(f"cannot write {error.filename or out}: {error.strerror}") from None
