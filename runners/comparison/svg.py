"""Plots as SVG text that stands in a page: lines with bands, and dots with intervals.

Invariant: pure functions of numbers and names; every name is escaped; an entrant is drawn by its place, with the page's
classes that ``mark`` names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 42
COLOURS = 10


@dataclass(frozen=True)
class PlotLine:
    """One entrant's line; NaN entries are gaps."""

    name: str
    place: int
    """Among the entrants: its colour."""
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False


@dataclass(frozen=True)
class Dot:
    """One entrant's mean and interval, and its single runs."""

    name: str
    place: int
    """Among the entrants: its colour."""
    mean: float
    low: float
    high: float
    single: Sequence[float] = ()


def mark(place: int) -> str:
    """The classes of an entrant: its colour, and ``again`` (dashed) where all colours have been used before."""
    return f"c{place % COLOURS}" + (" again" if place >= COLOURS else "")


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """About ``about`` round numbers from ``low`` to ``high``; one number where there is no room for more."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    raw = span / about
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(x: float) -> str:
    """A number for an axis: 1500000 is 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:g}{letter}"
    return f"{x:g}"


def lines(
    plots: Sequence[PlotLine],
    xlabel: str,
    ylabel: str,
    *,
    right: float | None = None,
    xlog2: bool = False,
    chance: float | None = None,
) -> str:
    """Lines from 0 to 1; lower ones are shown larger. x goes from 0 to ``right``, or over powers of 2 on a log axis."""
    xs = [x for plot in plots for x in plot.x if math.isfinite(x)]
    ys = [y for plot in plots for y in (*plot.y, *plot.high) if math.isfinite(y)]
    place = (lambda x: math.log2(x)) if xlog2 else (lambda x: x)
    x0 = place(min(xs, default=1)) if xlog2 else 0.0
    x1 = max((place(x) for x in xs), default=1.0) if right is None else right
    highest = max([*ys, 1e-9])
    y1 = highest * 1.08 if highest < 0.5 else max(1.0, highest)

    def px(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((place(x) - x0) / ((x1 - x0) or 1))

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (max(0.0, y) / y1)

    result = [_axes(px, py, sorted(set(xs)) if xlog2 else ticks(x0, x1), ticks(0, y1), xlabel, ylabel)]
    if chance is not None:
        result.append(f'<line class="chance" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(chance)}" y2="{py(chance)}"/>')
    for plot in plots:
        result += [_band(px, py, plot), *(_path(px, py, run, plot.place) for run in _runs(plot.x, plot.y))]
        if plot.dots:
            result += [
                f'<circle class="{mark(plot.place)}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="3"/>'
                for x, y in zip(plot.x, plot.y, strict=True)
                if math.isfinite(y)
            ]
    return _svg(HEIGHT, f"{ylabel} against {xlabel}", result)


def dots(plots: Sequence[Dot], xlabel: str) -> str:
    """One row per entrant: its interval as a bar, its mean as a dot, its runs as small ones."""
    left, row, top = 150, 26, 8
    height = top + row * len(plots) + BOTTOM
    every = [x for p in plots for x in (p.low, p.high, *p.single) if math.isfinite(x)]
    low, high = min(every, default=0.0), max(every, default=1.0)
    pad = 0.06 * (high - low) or 0.05
    low, high = low - pad, high + pad

    def px(x: float) -> float:
        return left + (WIDTH - left - RIGHT) * (x - low) / (high - low)

    result = [
        f'<line class="grid" x1="{px(x):.1f}" x2="{px(x):.1f}" y1="{top}" y2="{height - BOTTOM}"/>'
        f'<text class="tick" x="{px(x):.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{short(x)}</text>'
        for x in ticks(low, high)
    ]
    for i, p in enumerate(plots):
        y = top + row * (i + 0.5)
        result += [
            f'<text class="name" x="{left - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(_fit(p.name))}</text>',
            *(f'<circle class="{mark(p.place)} one" cx="{px(x):.1f}" cy="{y:.1f}" r="2.5"/>' for x in p.single),
            f'<line class="{mark(p.place)} bar" x1="{px(p.low):.1f}" x2="{px(p.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<circle class="{mark(p.place)}" cx="{px(p.mean):.1f}" cy="{y:.1f}" r="5"><title>{p.mean:.4g} '
            f"[{p.low:.4g}, {p.high:.4g}]</title></circle>",
        ]
    result.append(f'<text class="label" x="{(left + WIDTH) / 2:.0f}" y="{height - 6}">{escape(xlabel)}</text>')
    return _svg(height, xlabel, result)


Place = Callable[[float], float]


def _svg(height: float, title: str, inside: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
    return "\n".join([head, *inside, "</svg>"])


def _axes(px: Place, py: Place, xs: Sequence[float], ys: Sequence[float], xlabel: str, ylabel: str) -> str:
    bottom = HEIGHT - BOTTOM
    result = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(y):.1f}" y2="{py(y):.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{py(y) + 4:.1f}" text-anchor="end">{short(y)}</text>'
        for y in ys
    ]
    result += [
        f'<text class="tick" x="{px(x):.1f}" y="{bottom + 16}" text-anchor="middle">{short(x)}</text>' for x in xs
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    result.append(f'<text class="label" x="{middle:.0f}" y="{HEIGHT - 6}">{escape(xlabel)}</text>')
    turned = f'transform="rotate(-90 12 {(TOP + bottom) / 2:.0f})"'
    result.append(f'<text class="label" x="12" y="{(TOP + bottom) / 2:.0f}" {turned}>{escape(ylabel)}</text>')
    return "\n".join(result)


def _runs(x: Sequence[float], y: Sequence[float]) -> list[list[tuple[float, float]]]:
    """The stretches without a gap."""
    result: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(x, y, strict=True):
        if math.isfinite(a) and math.isfinite(b):
            result[-1].append((a, b))
        elif result[-1]:
            result.append([])
    return [run for run in result if run]


def _path(px: Place, py: Place, run: Sequence[tuple[float, float]], place: int) -> str:
    points = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in run)
    return f'<polyline class="{mark(place)} line" points="{points}"/>'


def _band(px: Place, py: Place, plot: PlotLine) -> str:
    if not plot.low:
        return ""
    edges = list(zip(plot.x, plot.low, plot.high, strict=True))
    known = [(x, a, b) for x, a, b in edges if math.isfinite(a) and math.isfinite(b)]
    up = [f"{px(x):.1f},{py(b):.1f}" for x, _, b in known]
    down = [f"{px(x):.1f},{py(a):.1f}" for x, a, _ in reversed(known)]
    return f'<polygon class="{mark(plot.place)} band" points="{" ".join([*up, *down])}"/>' if known else ""


def _fit(name: str, most: int = 18) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
