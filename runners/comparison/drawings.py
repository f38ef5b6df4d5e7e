"""The pictures of a comparison's page.

Invariant: every entrant keeps its place among the entrants, from which its colour comes, in every picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

import numpy as np

from runners.comparison.curves import AXES, History, binned
from runners.comparison.findings import BY_TURN, Findings
from runners.comparison.measures import title
from runners.comparison.svg import Dot, PlotLine, dots, lines, mark
from runners.crediting.quality import TITLES
from runners.statistics.intervals import Interval, over_seeds

BINS = 40
"""Points of a curve."""
BANDED = 6
"""Most entrants whose curves have bands: more of them hide each other."""
SHOWN = ("auc", "auc_valid", "auc_seconds", "final_sampled", "final_greedy", "tokens_per_group")
"""Measures that are drawn."""


def key(names: Sequence[str]) -> str:
    """Which colour is whose."""
    items = (f"<li><i class='{mark(i)}'></i>{escape(name)}</li>" for i, name in enumerate(names))
    return f"<ul class='key'>{''.join(items)}</ul>"


def curves(result: Findings) -> str:
    """Success of training batches against each axis, and on validation tasks."""
    found = []
    banded = len(result.histories) <= BANDED
    for axis, label in AXES.items():
        ends = [min(h.column(axis)[-1] for h in mine.values()) for mine in result.histories.values()]
        limit = result.env_steps if axis == "env_steps" else max(ends)
        plots = [_curve(name, i, mine, axis, limit) for i, (name, mine) in enumerate(result.histories.items())]
        plots = plots if banded else [replace(plot, low=(), high=()) for plot in plots]
        note = "training batches, sampled: mean over seeds" + (" with its 95 % band" if banded else "")
        found.append(_figure(lines(plots, label, "success", right=limit), note))
    valid = [_valid(name, i, mine) for i, (name, mine) in enumerate(result.histories.items())]
    if any(line.x for line in valid):
        picture = lines(valid, AXES["env_steps"], "success", right=result.env_steps)
        found.append(_figure(picture, "validation tasks, sampled: mean over seeds"))
    return _side_by_side(found)


def _curve(name: str, place: int, histories: Mapping[int, History], axis: str, limit: float) -> PlotLine:
    """Mean over seeds in equal stretches of 0..limit; a gap where some seed had ended."""
    success_SB = np.asarray([binned(h.column(axis), h.column("success"), limit, BINS) for h in histories.values()])
    middles = ((np.arange(BINS) + 0.5) * limit / BINS).tolist()
    known = np.isfinite(success_SB).all(axis=0)
    bands = [over_seeds([success_SB[:, [b]]], draws=1000) if known[b] else None for b in range(BINS)]
    return _banded(name, place, middles, bands)


def _banded(
    name: str, place: int, x: Sequence[float], values: Sequence[Interval | None], dots: bool = False
) -> PlotLine:
    nothing = Interval(math.nan, math.nan, math.nan)
    told = [value or nothing for value in values]
    columns = [v.mean for v in told], [v.low for v in told], [v.high for v in told]
    return PlotLine(name, place, x, *columns, dots=dots)


def _valid(name: str, place: int, histories: Mapping[int, History]) -> PlotLine:
    """Means over seeds of the evaluations that every run had, in their order."""
    of_run = [[e for e in h.valid if "sampled" in e] for h in histories.values()]
    columns = list(zip(*of_run, strict=False))
    x, y = ([float(np.mean([e[what] for e in column])) for column in columns] for what in ("env_steps", "sampled"))
    return PlotLine(name, place, x, y, dots=True)


def measures(result: Findings) -> str:
    """Means, intervals and single runs of the chief measures."""
    found = []
    for measure in (measure for measure in SHOWN if measure in result.keys):
        plots = []
        for i, (name, of_seed) in enumerate(result.figures.items()):
            value = result.means[measure][name]
            if value is not None:
                single = [float(np.nanmean(figures[measure])) for figures in of_seed.values()]
                plots.append(Dot(name, i, value.mean, value.low, value.high, single))
        if plots:
            found.append(_figure(dots(plots, title(measure)), ""))
    return _side_by_side(found)


def pass_at_k(result: Findings) -> str:
    """pass@k against k, where it was measured."""
    ks = {measure: float(measure.removeprefix("pass@")) for measure in result.keys if measure.startswith("pass@")}
    if not ks:
        return ""
    plots = []
    for i, name in enumerate(result.figures):
        values = [result.means[measure][name] for measure in ks]
        plots.append(_banded(name, i, list(ks.values()), values, dots=True))
    start = [result.start[measure].mean for measure in ks]
    plots.append(PlotLine("start", 8, list(ks.values()), start, dots=True))
    note = "of the last policy on test tasks, sampled; grey: the policy that all begin from"
    return f"<h2>pass@k</h2>{_side_by_side([_figure(lines(plots, 'k', 'pass@k', xlog2=True), note)])}"


def by_turn(result: Findings) -> str:
    """Credit and critic at each place in the episode."""
    found = []
    for when, figures in result.credit_by_turn.items():
        for figure in BY_TURN:
            plots = [
                PlotLine(name, list(result.figures).index(name), turns, values, dots=True)
                for name, (turns, values) in figures[figure].items()
                if turns
            ]
            if plots:
                note = f"{when} policy: {TITLES[figure]}; mean over seeds; dashed: chance"
                found.append(_figure(lines(plots, "turn", TITLES[figure], chance=0.5), note))
    return _side_by_side(found)


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _side_by_side(figures: Sequence[str]) -> str:
    return f"<div class='grid2'>{''.join(figures)}</div>"
