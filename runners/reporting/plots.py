"""Plots with matplotlib, without a display and without global state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#9aa5b1"


@contextmanager
def plot(file: Path, width: float, height: float, panels: int = 1) -> Iterator[Sequence[Axes]]:
    """Axes to draw on, side by side; the picture is written into ``file`` at the end. Sizes are in inches.

    The ending of ``file`` chooses the format. Raises OSError.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for one in axes:
        one.grid(alpha=0.3)
    yield axes
    undated = {"Date": None} if file.suffix == ".svg" else None  # equal figures give equal files
    figure.savefig(file, dpi=150, metadata=undated)
