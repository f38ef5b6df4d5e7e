"""The learning curve of a run: success of training batches and evaluations against time."""

import json
from pathlib import Path
from typing import Any

from runners.reporting.plots import GREY, plot


def draw_curve(folder: Path, title: str) -> Path:
    """Draws curve.png from metrics.jsonl."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    updates = [e for e in entries if e["kind"] == "update"]
    evaluations: dict[tuple[str, str], list[dict[str, float]]] = {}
    for entry in entries:
        if entry["kind"] == "evaluation":
            evaluations.setdefault((entry["split"], entry["mode"]), []).append(entry)
    path = folder / "curve.png"
    with plot(path, 7, 4) as (axes,):
        seconds, success = ([e[key] for e in updates] for key in ("seconds", "success"))
        axes.plot(seconds, success, lw=1, color=GREY, label="training batches, sampled")
        colours = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e")
        for ((split, mode), mine), colour in zip(evaluations.items(), colours, strict=False):
            seconds, mean = ([e[key] for e in mine] for key in ("seconds", "mean"))
            error = [[e["mean"] - e["low"] for e in mine], [e["high"] - e["mean"] for e in mine]]
            line = 1.5 if split == "valid" else 0  # before and after: nothing is known about what lies between
            style: dict[str, Any] = {"marker": "o", "ms": 3.5, "lw": line, "elinewidth": 1.5, "capsize": 3}
            axes.errorbar(seconds, mean, yerr=error, label=f"{split} tasks, {mode}", color=colour, **style)
        axes.set(xlabel="seconds since the run began", ylabel="success", ylim=(0, 1), title=title)
        axes.legend(loc="lower right", frameon=False)
    return path
