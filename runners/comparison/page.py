"""The report of a comparison as one HTML page.

Invariant: the page runs no script and fetches nothing; every text that comes from settings is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

import yaml

from runners.command_line.plain import plain
from runners.comparison import drawings
from runners.comparison.claims import Judged, Verdict
from runners.comparison.findings import Findings
from runners.comparison.markdown import CREDIT_NOTE, INTERVALS, VERDICTS, about_tuning, flow, headline
from runners.comparison.measures import MEASURES, better, form, title
from runners.crediting.quality import ABOUT, TITLES
from runners.statistics.intervals import Interval

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


def page(result: Findings) -> str:
    """The whole page."""
    names = list(result.figures)
    style = files("runners.comparison").joinpath("page.css").read_text("utf-8")
    parts = [
        HEAD.replace("{title}", escape(f"Comparison: {', '.join(names)}")).replace("{style}", style),
        f"<h1>Comparison</h1><p class='dim'>{escape(headline(result))}</p>",
        _claims(result.judged),
        "<h2>Success along the way</h2>",
        drawings.key(names),
        drawings.curves(result),
        "<h2>Measures</h2>",
        drawings.measures(result),
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
        drawings.pass_at_k(result),
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
    return f"<h2>Claims</h2>{_table(head, rows, text=(0, 1, 3, 4))}<p class='dim'>{escape(VERDICTS)}</p>"


def _differences(result: Findings) -> str:
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


def _credit(result: Findings) -> str:
    if not result.credit:
        return ""
    found = ["<h2>Credit accuracy</h2>", f"<p class='dim'>{escape(CREDIT_NOTE.format(baseline=result.baseline))}</p>"]
    for when, told in result.credit.items():
        names = list(next(iter(told.values())))
        rows = [[escape(TITLES[key]), *(_interval(told[key][n], ".3f") for n in names)] for key in told]
        found += [f"<h3>{when} policy</h3>", _table(["", *names], rows)]
    found.append(drawings.by_turn(result))
    return "\n".join([*found, _definitions({TITLES[key]: about for key, about in ABOUT.items()})])


def _tuning(result: Findings) -> str:
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
    heads = (f"<th class='text'>{escape(h)}</th>" if c in text else f"<th>{escape(h)}</th>" for c, h in enumerate(head))
    result = [f"<tr>{''.join(heads)}</tr>"]
    for r, row in enumerate(rows):
        cells = []
        for c, cell in enumerate(row):
            named = (classes or {}).get((r, c), "text" if c in text else "")
            cells.append(f"<td class='{named}'>{cell}</td>" if named else f"<td>{cell}</td>")
        result.append(f"<tr{' class=chosen' if r in chosen else ''}>{''.join(cells)}</tr>")
    return f"<div class='wide'><table>{''.join(result)}</table></div>"
