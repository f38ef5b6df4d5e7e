"""Results of agents that use scores: table, Markdown, CSV and one picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from runners.command_line.outputs import writing
from runners.command_line.plain import plain
from runners.inference.program import StudyResult
from runners.inference.settings import Agent
from runners.inference.success_by_tokens import BASELINES, Row, rows_of
from runners.reporting.plots import plot
from runners.reporting.tables import cell, markdown_table, show_table, write_csv
from runners.run_folder.folder import write_whole
from runners.statistics.intervals import Interval

COLUMNS = ("agent", "scorer", "budget", "success", "tokens", "value tokens", *(f"over {b}" for b in BASELINES))
STOPS = {
    "failing_saved": "tokens of failing episodes saved",
    "tokens_saved": "of all tokens saved",
    "failing_stopped": "failing episodes given up",
    "success_lost": "success lost",
}


def cells(row: Row) -> list[str]:
    """A row of the table as text."""
    over = (row.over.get(name) for name in BASELINES)
    figures = [cell(row.success), cell(row.tokens, ".1f"), f"{row.value_tokens:.1f}"]
    return [row.agent, row.scorer, str(row.budget), *figures, *("" if x is None else cell(x, sign=True) for x in over)]


def stop_cells(stop: dict[str, Any]) -> list[str]:
    figures: dict[str, Interval] = stop["figures"]
    threshold = f"{stop['threshold']:.3f} ({stop['rule']})"
    return [stop["scorer"], threshold, *(cell(figures[key]) if key in figures else "" for key in STOPS)]


def tables(result: StudyResult) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """(title, headings, rows)."""
    title = "success and sampled tokens per task, tokens read for values, 95 % intervals over tasks"
    out: list[tuple[str, Sequence[str], list[list[str]]]]
    out = [(title, COLUMNS, list(map(cells, rows_of(result.points))))]
    if result.stops:
        headings = ("scorer", "threshold (rule)", *STOPS.values())
        out.append(("early stop, chosen on validation tasks", headings, list(map(stop_cells, result.stops))))
    return out


def show(result: StudyResult, console: Console) -> None:
    for title, headings, rows in tables(result):
        show_table(title, headings, rows, console, text=2)
    for kind, weight in result.weights.items():
        console.print(f"{kind}: weight of the log-probability {weight:.4g}", highlight=False)


def as_json(result: StudyResult) -> dict[str, Any]:
    """Every figure as plain values."""
    return {"rows": plain(rows_of(result.points)), "early_stop": plain(result.stops), "weights": plain(result.weights)}


def csv_rows(result: StudyResult) -> list[dict[str, Any]]:
    """One row per scorer and budget."""
    rows = []
    for row in rows_of(result.points):
        who = {key: getattr(row, key) for key in ("agent", "scorer", "budget", "tasks", "value_tokens")}
        figures = {"success": row.success, "tokens": row.tokens} | {f"over_{b}": row.over.get(b) for b in BASELINES}
        ends = {f"{name}_{end}": getattr(x, end, "") for name, x in figures.items() for end in ("mean", "low", "high")}
        rows.append(who | ends)
    return rows


def draw(result: StudyResult, title: str, path: Path) -> None:
    """Success against sampled tokens: a panel for each agent, a line for each scorer, and the one episode in all."""
    rows = rows_of(result.points)
    alone = [row for row in rows if row.scorer == "none"]
    agents = list(dict.fromkeys(row.agent for row in rows if row.scorer != "none")) or [Agent.REACT]
    # A scorer has one colour in all panels.
    colours = {scorer: f"C{i}" for i, scorer in enumerate(dict.fromkeys(row.scorer for row in rows))}
    with plot(path, 0.5 + 6.5 * len(agents), 5, len(agents)) as panels:
        for axes, agent in zip(panels, agents, strict=True):
            mine = [*alone, *(row for row in rows if row.agent == agent and row.scorer != "none")]
            for scorer in dict.fromkeys(row.scorer for row in mine):
                _curve(axes, [row for row in mine if row.scorer == scorer], colours[scorer])
            named = f"{title}: {agent}" if len(agents) > 1 else title
            axes.set(xlabel="sampled tokens per task", ylabel="success", ylim=(0, 1), title=named)
            # Below, where no curve runs through it.
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=4, frameon=False, fontsize="small")


def _curve(axes: Any, rows: Sequence[Row], colour: str) -> None:
    rows = sorted(rows, key=lambda row: row.tokens.mean)
    success = [row.success for row in rows]
    error = [[x.mean - x.low for x in success], [x.high - x.mean for x in success]]
    label = "one episode" if rows[0].scorer == "none" else rows[0].scorer
    x, y = [row.tokens.mean for row in rows], [x.mean for x in success]
    axes.errorbar(x, y, yerr=error, marker="o", ms=4, capsize=3, label=label, color=colour)


def write(result: StudyResult, title: str, out: Path) -> None:
    """The files beside the JSON of ``out``: .md, .csv and .png. Raises UserError."""
    parts = (f"{name}:\n\n{markdown_table(headings, rows)}" for name, headings, rows in tables(result))
    with writing(out):
        write_whole(out.with_suffix(".md"), "\n\n".join(parts) + "\n")
        write_csv(out.with_suffix(".csv"), csv_rows(result))
        draw(result, title, out.with_suffix(".png"))
