"""A row as people read it, and the list of the suites."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from runners.benching.results import EntryResult, Row
from runners.benching.suites import Suite
from runners.reporting.tables import cell, show_table
from runners.statistics.intervals import Interval

SHORT = 16
"""Digits of a digest in a table."""


def show(row: Row, label: str, console: Console) -> None:
    """The table of a row, its costs and its digest."""
    head = ["", "tasks", "success", "turns", "tokens", "broken"]
    rows = [_line(entry) for entry in row.entries]
    rows.append(["mean of the entries", str(_tasks(row.entries)), cell(row.success), *[""] * 3])
    part = "" if row.whole else " (a part of it: not a row of the suite)"
    show_table(f"{row.suite}{part}, {label}: success, 95 % intervals over tasks", head, rows, console)
    console.print(f"row: {markdown(row, label)}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"digest: {row.digest}", soft_wrap=True, highlight=False)


def _line(entry: EntryResult) -> list[str]:
    figures = [cell(entry.mean("success")), f"{entry.mean('turns').mean:.2f}", f"{entry.mean('tokens').mean:.1f}"]
    return [entry.name, str(len(entry.results)), *figures, str(entry.broken)]


def _tasks(entries: Sequence[EntryResult]) -> int:
    return sum(len(entry.results) for entry in entries)


def markdown(row: Row, label: str) -> str:
    """The row of a page: agent, success of the whole and of each entry, turns and tokens of all, digest. What is in it
    is the same each time."""
    name = row.suite if row.whole else f"{row.suite}, {_tasks(row.entries)} tasks only"
    entries = [f"{entry.name} {entry.mean('success').mean:.2f}" for entry in row.entries]
    costs = [f"{sum(entry.total(what) for entry in row.entries):,}" for what in ("turns", "tokens")]
    return "| " + " | ".join([name, label, _short(row.success), ", ".join(entries), *costs, row.digest[:SHORT]]) + " |"


def _short(x: Interval) -> str:
    return f"{x.mean:.3f} [{x.low:.3f}, {x.high:.3f}]"


def show_suites(suites: Sequence[Suite], console: Console) -> None:
    """Every suite with its entries."""
    for suite in suites:
        console.print(f"[bold]{suite.name}[/]: {suite.about}", highlight=False, soft_wrap=True)
        for entry in suite.entries:
            settings = ", ".join(f"{name} {_shown(value)}" for name, value in entry.settings.items()) or "its defaults"
            console.print(
                f"  {entry.name}: {entry.tasks} {entry.split} tasks of {entry.env} ({settings}), {entry.fingerprint}",
                highlight=False, soft_wrap=True, markup=False,
            )  # fmt: skip


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
