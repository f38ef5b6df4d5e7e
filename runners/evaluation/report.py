"""Results of evaluated policies: success, pass@k, turns and tokens, by level and language; and their table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from runners.evaluation.measure import PlayedTasks, paired_gain
from runners.statistics.intervals import Interval


def figures_of(found: Mapping[str, Mapping[str, PlayedTasks]]) -> dict[str, Any]:
    """All figures as plain values: each a mean with the ends of its 95 % interval over tasks."""
    out: dict[str, Any] = {}
    for name, modes in found.items():
        out[name] = {mode: _figures(result) for mode, result in modes.items()}
    if {"base", "trained"} <= set(found):
        out["gain"] = {
            mode: asdict(paired_gain(found["base"][mode], found["trained"][mode])) for mode in ("sampled", "greedy")
        }
    return out


def _figures(result: PlayedTasks) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "tasks": len(result.tasks),
        "samples": result.samples,
        "faults": len(result.outcomes) - len(result.episodes),
        "success": result.success(),
        "turns": result.mean(lambda e: len(e.turns)),
        "sampled_tokens": result.mean(lambda e: e.sampled_tokens),
        "pass_at_k": {str(2**i): asdict(result.pass_at(2**i)) for i in range(8) if 2**i <= result.samples},
        "level": {}, "language": {},
    }  # fmt: skip
    for key in ("level", "language"):
        for value in sorted({getattr(e.job.task, key) for e in result.episodes}):
            figures[key][str(value)] = result.where(key, value).success()
    names = sorted({name for e in result.episodes for name in e.metrics})
    figures["metrics"] = {name: result.metric(name) for name in names}
    return figures


def show(figures: Mapping[str, Any], console: Console) -> None:
    """The table that a person reads."""
    table = Table(title="success on held-out tasks, 95 % intervals over tasks", title_justify="left")
    columns = [(name, mode) for name in figures if name != "gain" for mode in figures[name]]
    table.add_column("")
    for name, mode in columns:
        table.add_column(f"{name}\n{mode}", justify="right", no_wrap=True)

    def row(label: str, pick: Callable[[Mapping[str, Any]], Mapping[str, float] | None], form: str = ".3f") -> None:
        cells = []
        for name, mode in columns:
            value = pick(figures[name][mode])
            ends = "" if value is None else f"\n{value['low']:{form}} - {value['high']:{form}}"
            cells.append("-" if value is None else f"{value['mean']:{form}}[dim]{ends}[/]")
        table.add_row(label, *cells)

    first = figures[columns[0][0]][columns[0][1]]
    row("success", lambda f: f["success"])
    for k in first["pass_at_k"]:
        if k != "1":
            row(f"pass@{k}", lambda f, k=k: f["pass_at_k"].get(k))  # type: ignore[misc]
    for key, label in (("level", "level {}"), ("language", "language {}")):
        for value in first[key]:
            row(label.format(value), lambda f, key=key, value=value: f[key].get(value))  # type: ignore[misc]
    row("turns", lambda f: f["turns"], ".2f")
    row("sampled tokens", lambda f: f["sampled_tokens"], ".1f")
    console.print(table)
    for mode, gain in figures.get("gain", {}).items():
        console.print(f"gain of training, {mode}: {Interval(**gain)}", highlight=False)
