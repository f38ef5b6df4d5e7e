"""Pictures of a comparison: SVG files, one panel each.

Invariant: an entrant has one colour in every picture, by its place among the entrants.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from runners.comparison.curves import AXES, History, binned
from runners.comparison.findings import BY_TURN, Findings
from runners.comparison.measures import measure_of
from runners.crediting.quality import TITLES
from runners.reporting.plots import GREY, plot
from runners.statistics.intervals import Interval, over_seeds

FOLDER = "pictures"
"""Of the picture files, in the folder of the report."""
BINS = 40
"""Points of a curve."""
BANDED = 6
"""Most entrants whose curves have bands: more of them hide each other."""
FEW = 12
"""Most entrants of a picture of the usual size; more of them get a legend beside it, and a line each of its height."""
LINES = ("-", "--", ":", "-.")
WIDTH, HEIGHT = 5.6, 3.6
"""Of a picture, in inches."""
SHOWN = ("auc", "auc_valid", "auc_seconds", "final_sampled", "final_greedy", "tokens_per_group")
"""Measures that are drawn."""

Panels = Callable[[str, str], AbstractContextManager[Any]]
"""(name, caption) -> matplotlib's axes, which are saved as a picture when they are left."""


def draw(result: Findings, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Draws everything into ``folder``; returns (caption, file name) by section of the report."""
    from matplotlib import rc_context

    (folder / FOLDER).mkdir(exist_ok=True)
    entrants = len(result.figures)
    size = (WIDTH, HEIGHT) if entrants <= FEW else (1.5 * WIDTH, 0.8 + 0.2 * entrants)
    drawn: dict[str, list[tuple[str, str]]] = {}
    sections = {"curves": curves, "measures": measures, "pass": pass_at_k, "credit": by_turn}
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "turnwise"}):
        # The text stays text: whoever opens the picture has the fonts.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        for section, paint in sections.items():
            files = drawn.setdefault(section, [])

            @contextmanager
            def panel(name: str, caption: str, files: list[tuple[str, str]] = files) -> Iterator[Any]:
                file = f"{FOLDER}/{name}.svg"
                with plot(folder / file, *size) as (axes,):
                    yield axes
                files.append((caption, file))

            paint(result, panel)
    return drawn


def _style(result: Findings, name: str) -> dict[str, Any]:
    """Colour and line of an entrant; another line where all colours have been used before."""
    place = list(result.figures).index(name)
    label = name.replace("$", r"\$")  # not mathematics
    return {"color": f"C{place % 10}", "ls": LINES[place // 10 % len(LINES)], "label": label}


def _finish(axes: Any, xlabel: str, ylabel: str, **limits: Any) -> None:
    axes.set(xlabel=xlabel, ylabel=ylabel, **limits)
    if lines := len(axes.get_legend_handles_labels()[0]):
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if lines > FEW else {}
        axes.legend(frameon=False, fontsize="small", **beside)


def curves(result: Findings, panel: Panels) -> None:
    """Success of training batches against each axis, and on validation tasks."""
    banded = len(result.histories) <= BANDED
    note = "training batches, sampled: mean over seeds" + (" with its 95 % band" if banded else "")
    for axis, label in AXES.items():
        ends = [min(h.column(axis)[-1] for h in mine.values()) for mine in result.histories.values()]
        limit = result.env_steps if axis == "env_steps" else max(ends)
        middles = (np.arange(BINS) + 0.5) * limit / BINS
        with panel(f"success-{axis}", note) as axes:
            for name, mine in result.histories.items():
                mean_B, low_B, high_B = _bands(mine, axis, limit)
                axes.plot(middles, mean_B, **_style(result, name))
                if banded:
                    axes.fill_between(middles, low_B, high_B, color=_style(result, name)["color"], alpha=0.16, lw=0)
            _finish(axes, label, "success", xlim=(0, limit), ylim=(0, None))
    points = {name: _evaluations(mine) for name, mine in result.histories.items()}
    if any(x for x, _ in points.values()):
        with panel("success-validation", "validation tasks, sampled: mean over seeds") as axes:
            for name, (x, y) in points.items():
                axes.plot(x, y, marker="o", ms=4, **_style(result, name))
            _finish(axes, AXES["env_steps"], "success", xlim=(0, result.env_steps), ylim=(0, None))


def _bands(histories: Mapping[int, History], axis: str, limit: float) -> Any:
    """(mean, low, high) over seeds in equal stretches of 0..limit; NaN where some seed had ended."""
    success_SB = np.asarray([binned(h.column(axis), h.column("success"), limit, BINS) for h in histories.values()])
    known = np.isfinite(success_SB).all(axis=0)
    bands = [over_seeds([success_SB[:, [b]]], draws=1000) if known[b] else None for b in range(BINS)]
    return _columns(bands)


def _columns(values: Sequence[Interval | None]) -> Any:
    return np.asarray([(np.nan,) * 3 if v is None else (v.mean, v.low, v.high) for v in values]).T


def _evaluations(histories: Mapping[int, History]) -> tuple[list[float], list[float]]:
    """Means over seeds of (environment steps, success) of the evaluations that every run had, in their order."""
    of_run = zip(*(h.sampled for h in histories.values()), strict=True)
    x, y = ([float(np.mean(at)) for at in zip(*of_all, strict=False)] for of_all in of_run)
    return x, y


def measures(result: Findings, panel: Panels) -> None:
    """Means, intervals and single runs of the chief measures."""
    names = list(result.figures)
    for measure in (measure for measure in SHOWN if measure in result.keys):
        with panel(measure, "mean, 95 % interval and single runs") as axes:
            for row, name in enumerate(names):
                value, colour = result.means[measure][name], _style(result, name)["color"]
                if value is None:
                    continue
                single = [float(np.nanmean(figures[measure])) for figures in result.figures[name].values()]
                axes.plot([value.low, value.high], [row, row], color=colour, lw=4, alpha=0.45)
                axes.plot(single, [row] * len(single), "o", color=colour, ms=4, alpha=0.5)
                axes.plot([value.mean], [row], "o", color=colour, ms=8)
            axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
            axes.invert_yaxis()
            _finish(axes, measure_of(measure).title, "")


def pass_at_k(result: Findings, panel: Panels) -> None:
    """pass@k against k, where it was measured."""
    ks = {measure: int(measure.removeprefix("pass@")) for measure in result.keys if measure.startswith("pass@")}
    if not ks:
        return
    with panel("pass-at-k", "the last policy on test tasks, sampled; grey: the policy that all begin from") as axes:
        for name in result.figures:
            mean_K, low_K, high_K = _columns([result.means[measure][name] for measure in ks])
            style = _style(result, name)
            axes.plot(list(ks.values()), mean_K, marker="o", ms=4, **style)
            axes.fill_between(list(ks.values()), low_K, high_K, color=style["color"], alpha=0.16, lw=0)
        start = [result.start[measure].mean for measure in ks]
        axes.plot(list(ks.values()), start, marker="o", ms=4, color=GREY, label="start")
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(ks.values()), list(map(str, ks.values())))
        _finish(axes, "k", "pass@k", ylim=(0, None))


def by_turn(result: Findings, panel: Panels) -> None:
    """Credit and critic at each place in the episode."""
    for when, figure in product(result.credit_by_turn, BY_TURN):
        known = {name: points for name, points in result.credit_by_turn[when][figure].items() if points[0]}
        if not known:
            continue
        with panel(f"{figure}-{when}", f"{when} policy: {TITLES[figure]}; mean over seeds; dotted: chance") as axes:
            axes.axhline(0.5, color=GREY, ls=":")
            for name, (turns, values) in known.items():
                axes.plot(turns, values, marker="o", ms=4, **_style(result, name))
            _finish(axes, "turn", TITLES[figure], ylim=(0, 1.02))
