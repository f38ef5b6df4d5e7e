"""Results of evaluated policies: success, pass@k, turns and tokens, by level and language; and their table."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from runners.evaluation.measure import PlayedTasks, paired_gain
from runners.reporting.tables import NONE, cell, show_table
from runners.statistics.intervals import Interval


def figures_of(found: Mapping[str, Mapping[str, PlayedTasks]]) -> dict[str, Any]:
    """All figures, each a mean with its 95 % interval over tasks."""
    out: dict[str, Any] = {}
    for name, modes in found.items():
        out[name] = {mode: _figures(result) for mode, result in modes.items()}
    if {"base", "trained"} <= set(found):
        out["gain"] = {mode: paired_gain(found["base"][mode], found["trained"][mode]) for mode in ("sampled", "greedy")}
    return out


def _figures(result: PlayedTasks) -> dict[str, Any]:
    passes = {str(2**i): result.pass_at(2**i) for i in range(8) if 2**i <= result.samples}
    figures: dict[str, Any] = {
        "tasks": len(result.tasks),
        "samples": result.samples,
        "faults": len(result.outcomes) - len(result.episodes),
        "success": result.success(),
        "turns": result.mean(lambda e: len(e.turns)),
        "sampled_tokens": result.mean(lambda e: e.sampled_tokens),
        "pass_at_k": {k: interval for k, (interval, _) in passes.items()},
        "pass_at_k_tasks": {k: tasks for k, (_, tasks) in passes.items()},
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
    columns = [(name, mode) for name in figures if name != "gain" for mode in figures[name]]
    shown = [figures[name][mode] for name, mode in columns]
    lines: list[tuple[str, list[Interval | None], str]] = [("success", [f["success"] for f in shown], ".3f")]
    ks = [k for k in shown[0]["pass_at_k"] if k != "1"]
    lines += [(f"pass@{k}", [f["pass_at_k"].get(k) for f in shown], ".3f") for k in ks]
    for key in ("level", "language"):
        lines += [(f"{key} {value}", [f[key].get(value) for f in shown], ".3f") for value in shown[0][key]]
    lines.append(("turns", [f["turns"] for f in shown], ".2f"))
    lines.append(("sampled tokens", [f["sampled_tokens"] for f in shown], ".1f"))
    rows = [[label, *(cell(x, form) for x in values)] for label, values, form in lines]
    head = ["", *(f"{name}\n{mode}" for name, mode in columns)]
    show_table("success on held-out tasks, 95 % intervals over tasks", head, rows, console)
    for f in shown:
        for k, tasks in f["pass_at_k_tasks"].items():
            if tasks < f["tasks"]:
                console.print(f"pass@{k} is over {tasks} of {f['tasks']} tasks: the others broke too often")
    for mode, gain in figures.get("gain", {}).items():
        console.print(f"gain of training, {mode}: {gain or NONE}", highlight=False)
