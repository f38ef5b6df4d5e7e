"""The table and the picture of a critic's calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

SHOWN = 8
"""Turns of which the table tells, evenly spread over those that are known."""
TITLES = {
    "auc": "AUC of V for success",
    "auc_middle": "… in the middle: after half of the median number of turns",
    "auc_middle_predictor": "… of a predictor from turn and level alone",
    "auc_middle_gain": "… gain of V over it",
    "auc_half": "… after half of the episode's own turns",
    "auc_half_predictor": "… of that predictor, given the length too",
    "auc_half_gain": "… gain of V over it",
    "brier": "Brier score of V",
    "brier_predictor": "… of that predictor",
    "auc_solvable": "AUC of V: still solvable",
    "auc_solvable_predictor": "… of that predictor",
    "auc_oracle": "AUC of the exact value for success",
}


def show(found: Mapping[str, Any], console: Console) -> None:
    """The table of the critic."""
    count = found["counts"]
    table = Table(
        title=f"critic: {count['states']} states of {count['episodes']} sampled episodes ({count['succeeded']} "
        "succeeded), 95 % intervals over tasks",
        title_justify="left",
    )
    table.add_column("")
    table.add_column("", justify="right")
    for key, label in TITLES.items():
        if key in found["figures"]:
            table.add_row(label, str(found["figures"][key] or "-").replace(" [", " \\["))
    rows = found["by_turn"]
    for row in (rows[i] for i in sorted({round(x) for x in np.linspace(0, len(rows) - 1, SHOWN)}) if rows):
        told = "-" if row["auc"] is None else f"{row['auc']:.3f}"
        table.add_row(f"turn {row['turn'] + 1}: V, success, AUC", f"{row['value']:.3f}, {row['success']:.3f}, {told}")
    console.print(table)


def draw(found: Mapping[str, Any], title: str, path: Path) -> None:
    """Success against value, of all states and of some turns."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(5, 5), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    axes.plot([0, 1], [0, 1], color="#9aa5b1", lw=1, ls="--")
    turns = found["by_turn"]
    shown = [turns[i] for i in sorted({round(x) for x in np.linspace(0, len(turns) - 1, 4)})] if turns else []
    for row in shown:
        _curve(axes, row["reliability"], f"turn {row['turn'] + 1}", lw=1, ms=3)
    _curve(axes, found["reliability"], "all turns", lw=2.2, ms=5, color="black")
    axes.set(xlabel="V, cut to 0…1", ylabel="share that succeeded", xlim=(0, 1), ylim=(0, 1), title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    picture.savefig(path, dpi=150)


def _curve(axes: Any, rows: Sequence[Mapping[str, float]], label: str, **style: Any) -> None:
    axes.plot([row["value"] for row in rows], [row["success"] for row in rows], marker="o", label=label, **style)
