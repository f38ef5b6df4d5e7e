"""The picture of a run: success of the training batches and of the evaluations against time."""

from __future__ import annotations

import json
from pathlib import Path


def draw_curve(folder: Path, title: str) -> Path:
    """Draws the success of the training batches and of the evaluations from metrics.jsonl into curve.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    updates = [e for e in entries if e["kind"] == "update"]
    checks = [e for e in entries if e["kind"] == "evaluation"]
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(
        [e["seconds"] for e in updates],
        [e["success"] for e in updates],
        lw=1,
        color="#9aa5b1",
        label="training batches, sampled",
    )
    for (split, mode), color in zip(
        dict.fromkeys((e["split"], e["mode"]) for e in checks),
        ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e"),
        strict=False,
    ):
        mine = [e for e in checks if (e["split"], e["mode"]) == (split, mode)]
        mean = [e["mean"] for e in mine]
        error = [[e["mean"] - e["low"] for e in mine], [e["high"] - e["mean"] for e in mine]]
        axes.errorbar(
            [e["seconds"] for e in mine],
            mean,
            yerr=error,
            marker="o",
            ms=3.5,
            lw=1.5 if split == "valid" else 0,  # before and after: nothing is known about what lies between
            elinewidth=1.5,
            capsize=3,
            color=color,
            label=f"{split} tasks, {mode}",
        )
    axes.set(xlabel="seconds since the run began", ylabel="success", ylim=(0, 1), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    path = folder / "curve.png"
    figure.savefig(path, dpi=150)
    return path
