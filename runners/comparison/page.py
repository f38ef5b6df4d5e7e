"""The report of a comparison as one HTML page.

Invariant: the page runs no script and fetches nothing; every text that comes from settings is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from runners.comparison.claims import Judged, Verdict
from runners.comparison.curves import AXES, binned
from runners.comparison.markdown import CREDIT_NOTE, INTERVALS, VERDICTS, about_tuning, flow, headline
from runners.comparison.measures import MEASURES, better, form, title
from runners.comparison.svg import Dot, Line, dots, lines
from runners.config import plain
from runners.credit_quality import ABOUT, TITLES
from runners.intervals import Interval, over_seeds

if TYPE_CHECKING:
    from runners.comparison.report import Result

BINS = 40
"""Points of a curve."""
SHOWN = ("auc", "auc_valid", "auc_seconds", "final_sampled", "final_greedy", "tokens_per_group")
"""Measures that are drawn."""
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
"""


def page(result: Result) -> str:
    """The whole page."""
    names = list(result.figures)
    style = files("runners.comparison").joinpath("page.css").read_text("utf-8")
    parts = [
        HEAD.replace("{title}", escape(f"Comparison: {', '.join(names)}")).replace("{style}", style),
        f"<h1>Comparison</h1><p class='dim'>{escape(headline(result))}</p>",
        _claims(result.judged),
        "<h2>Success along the way</h2>",
        _key(names),
        _curves(result),
        "<h2>Measures</h2>",
        _drawn(result),
        _table(
            ["", "start", *names],
            [
                [
                    escape(title(key)),
                    _cell(result.start.get(key), key),
                    *(_cell(result.means[key][n], key) for n in names),
                ]
                for key in result.keys
            ],
        ),
        _differences(result),
        _pass_curve(result),
        _credit(result),
        _tuning(result),
        "<h2>What is measured</h2>",
        _definitions({MEASURES[key].title: MEASURES[key].about for key in result.keys if key in MEASURES}),
        f"<p>{escape(INTERVALS)}</p>",
        "<h2>Settings</h2><details><summary>all of them</summary><pre>",
        escape(yaml.safe_dump(plain(result.settings), sort_keys=False, allow_unicode=True)),
        "</pre></details>\n</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _key(names: Sequence[str]) -> str:
    items = (f"<li><i class='c{i % 10}'></i>{escape(name)}</li>" for i, name in enumerate(names))
    return f"<ul class='key'>{''.join(items)}</ul>"


def _claims(judged: Sequence[Judged]) -> str:
    if not judged:
        return ""
    classes = {Verdict.HOLDS: "holds", Verdict.FAILS: "fails", Verdict.UNDECIDED: "undecided"}
    rows = []
    for one in judged:
        said = escape(one.claim.text) or "<span class='dim'>–</span>"
        badge = f"<span class='verdict {classes[one.verdict]}'>{one.verdict}</span>"
        rows.append(
            [
                said,
                badge,
                _interval(one.value, ".3f"),
                f"<code>{escape(str(one.claim))}</code>",
                escape(one.claim.source),
            ]
        )
    head = ["claim", "verdict", "value", "as tested", "source"]
    return f"<h2>Claims</h2>{_table(head, rows, text=(0, 3, 4))}<p class='dim'>{escape(VERDICTS)}</p>"


def curve_of(
    histories: Mapping[int, Any], axis: str, limit: float
) -> tuple[list[float], list[float], list[float], list[float]]:
    """(x, mean, low, high) of the success of training batches over seeds, in equal stretches of 0..limit."""
    success_SB = np.asarray([binned(h.column(axis), h.column("success"), limit, BINS) for h in histories.values()])
    middle = ((np.arange(BINS) + 0.5) * limit / BINS).tolist()
    known = np.isfinite(success_SB).all(axis=0)
    bands = [over_seeds([success_SB[:, [b]]], draws=1000) if known[b] else None for b in range(BINS)]
    gap = math.nan
    return (
        middle,
        [gap if band is None else band.mean for band in bands],
        [gap if band is None else band.low for band in bands],
        [gap if band is None else band.high for band in bands],
    )


def _curves(result: Result) -> str:
    found = []
    for axis, label in AXES.items():
        limit = max(h.column(axis)[-1] for mine in result.histories.values() for h in mine.values())
        limit = result.env_steps if axis == "env_steps" else limit
        plots = [Line(n, i % 10, *curve_of(mine, axis, limit)) for i, (n, mine) in enumerate(result.histories.items())]
        note = "training batches, sampled: mean over seeds with its 95 % band"
        found.append(_figure(lines(plots, label, "success"), note))
    valid = [Line(n, i % 10, *_valid(mine), dots=True) for i, (n, mine) in enumerate(result.histories.items())]
    if any(line.x for line in valid):
        found.append(_figure(lines(valid, AXES["env_steps"], "success"), "validation tasks, sampled: mean over seeds"))
    return f"<div class='grid2'>{''.join(found)}</div>"


def _valid(histories: Mapping[int, Any]) -> tuple[list[float], list[float]]:
    """Means over seeds of the evaluations that every run of the entrant had, in their order."""
    of_run = [[e for e in h.valid if "sampled" in e] for h in histories.values()]
    columns = list(zip(*of_run, strict=False))
    mean = [[float(np.mean([e[key] for e in column])) for column in columns] for key in ("env_steps", "sampled")]
    return mean[0], mean[1]


def _drawn(result: Result) -> str:
    found = []
    for key in (key for key in SHOWN if key in result.keys):
        told = {n: value for n, value in result.means[key].items() if value is not None}
        numbers = list(result.figures)
        plots = [
            Dot(
                n,
                numbers.index(n) % 10,
                v.mean,
                v.low,
                v.high,
                [float(np.nanmean(f[key])) for f in result.figures[n].values()],
            )
            for n, v in told.items()
        ]
        if plots:
            found.append(_figure(dots(plots, title(key)), ""))
    return f"<div class='grid2'>{''.join(found)}</div>"


def _differences(result: Result) -> str:
    others = [name for name in result.figures if name != result.baseline]
    rows, classes = [], {}
    for r, key in enumerate(result.keys):
        rows.append([escape(title(key)), *(_cell(result.differences[key][n], key, sign=True) for n in others)])
        for c, n in enumerate(others, 1):
            value = result.differences[key][n]
            if value is not None and better(key) and (value.low > 0 or value.high < 0):
                classes[r, c] = "up" if (value.mean > 0) == (better(key) > 0) else "down"
    note = "Runs of the same seed are compared. Coloured where the interval leaves 0 out: green is better."
    head = f"<h2>Differences to {escape(result.baseline)}</h2>"
    return f"{head}{_table(['', *others], rows, classes=classes)}<p class='dim'>{note}</p>"


def _pass_curve(result: Result) -> str:
    keys = [key for key in result.keys if key.startswith("pass@")]
    if not keys:
        return ""
    ks = [1.0, *(float(key.removeprefix("pass@")) for key in keys)]
    plots = []
    for i, n in enumerate(result.figures):
        values = [result.means[key][n] for key in ("final_sampled", *keys)]
        told = [(k, v) for k, v in zip(ks, values, strict=True) if v is not None]
        plots.append(
            Line(
                n,
                i % 10,
                [k for k, _ in told],
                [v.mean for _, v in told],
                [v.low for _, v in told],
                [v.high for _, v in told],
                dots=True,
            )
        )
    start = [
        (k, result.start[key].mean) for k, key in zip(ks, ("final_sampled", *keys), strict=True) if key in result.start
    ]
    plots.append(Line("start", 8, [k for k, _ in start], [v for _, v in start], dots=True))
    note = "pass@k of the last policy on test tasks; grey: the policy that all begin from. k = 1 is final success."
    return f"<h2>pass@k</h2><div class='grid2'>{_figure(lines(plots, 'k', 'pass@k', xlog2=True), note)}</div>"


def _credit(result: Result) -> str:
    if not result.credit:
        return ""
    found = ["<h2>Credit accuracy</h2>", f"<p class='dim'>{escape(CREDIT_NOTE.format(baseline=result.baseline))}</p>"]
    for when, told in result.credit.items():
        names = list(next(iter(told.values())))
        rows = [[escape(TITLES[key]), *(_interval(told[key][n], ".3f") for n in names)] for key in told]
        found += [f"<h3>{when} policy</h3>", _table(["", *names], rows)]
    return "\n".join([*found, _definitions({TITLES[key]: about for key, about in ABOUT.items()})])


def _tuning(result: Result) -> str:
    if not result.tried:
        return ""
    rows = [
        [
            escape(one.entrant),
            f"<code>{escape(flow(one.settings))}</code>",
            f"{one.area:.3f}",
            "chosen" if one.chosen else "",
        ]
        for one in result.tried
    ]
    chosen = [i for i, one in enumerate(result.tried) if one.chosen]
    table = _table(["entrant", "settings", "area", ""], rows, text=(0, 1), chosen=chosen)
    return f"<h2>Tuning</h2><p class='dim'>{escape(about_tuning(result))}</p>{table}"


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _definitions(terms: Mapping[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(t)}</dt><dd>{escape(about)}</dd>' for t, about in terms.items())}</dl>"


def _cell(value: Interval | None, key: str, *, sign: bool = False) -> str:
    return _interval(value, form(key), sign=sign)


def _interval(value: Interval | None, spec: str, *, sign: bool = False) -> str:
    if value is None:
        return "<span class='dim'>–</span>"
    spec = f"+{spec}" if sign else spec
    return f"{value.mean:{spec}}<small>{value.low:{spec}} … {value.high:{spec}}</small>"


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text: Sequence[int] = (0,),
    classes: Mapping[tuple[int, int], str] | None = None,
    chosen: Sequence[int] = (),
) -> str:
    """A table of cells that are HTML already; the head is plain text."""
    lines_ = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for r, row in enumerate(rows):
        cells = []
        for c, cell in enumerate(row):
            named = (classes or {}).get((r, c), "text" if c in text else "")
            cells.append(f"<td class='{named}'>{cell}</td>" if named else f"<td>{cell}</td>")
        lines_.append(f"<tr{' class=chosen' if r in chosen else ''}>{''.join(cells)}</tr>")
    return f"<div class='wide'><table>{''.join(lines_)}</table></div>"
