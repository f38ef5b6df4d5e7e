"""The table and the picture of a critic's calibration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from runners.reporting.plots import GREY, plot
from runners.reporting.tables import NONE, cell, show_table

SHOWN = 8
"""Most turns in the table."""
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


def show(result: Mapping[str, Any], console: Console) -> None:
    """The table of the critic."""
    count = result["counts"]
    title = (
        f"critic: {count['states']} states of {count['episodes']} sampled episodes ({count['succeeded']} succeeded), "
        "95 % intervals over tasks"
    )
    rows = [[label, cell(result["figures"][key])] for key, label in TITLES.items() if key in result["figures"]]
    for row in _spread(result["by_turn"], SHOWN):
        auc = NONE if row["auc"] is None else f"{row['auc']:.3f}"
        rows.append([f"turn {row['turn'] + 1}: V, success, AUC", f"{row['value']:.3f}, {row['success']:.3f}, {auc}"])
    show_table(title, ["", ""], rows, console)


def _spread(rows: Sequence[Mapping[str, Any]], n: int) -> list[Mapping[str, Any]]:
    """At most ``n`` rows, evenly spread."""
    return [rows[i] for i in sorted({round(x) for x in np.linspace(0, len(rows) - 1, n)})] if rows else []


def draw(result: Mapping[str, Any], title: str, path: Path) -> None:
    """Success against value, of all states and of some turns."""
    with plot(path, 5, 5) as (axes,):
        axes.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
        for row in _spread(result["by_turn"], 4):
            _curve(axes, row["reliability"], f"turn {row['turn'] + 1}", lw=1, ms=3)
        _curve(axes, result["reliability"], "all turns", lw=2.2, ms=5, color="black")
        axes.set(xlabel="V, cut to 0…1", ylabel="share that succeeded", xlim=(0, 1), ylim=(0, 1), title=title)
        axes.legend(frameon=False)


def _curve(axes: Any, rows: Sequence[Mapping[str, float]], label: str, **style: Any) -> None:
    axes.plot([row["value"] for row in rows], [row["success"] for row in rows], marker="o", label=label, **style)
