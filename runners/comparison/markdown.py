"""The report of a comparison as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import yaml

from runners.comparison.measures import MEASURES, form, title
from runners.config import plain
from runners.intervals import Interval

if TYPE_CHECKING:
    from runners.comparison.report import Result


def markdown(result: Result) -> str:
    """The whole report."""
    names = list(result.figures)
    others = [name for name in names if name != result.baseline]
    parts = [
        "# Comparison",
        f"{', '.join(names)}: {len(result.seeds)} seeds each, {result.env_steps:,} environment steps a run. The "
        f"baseline is {result.baseline}.",
        "## Measures",
        _table(
            ["", "start", *names],
            [
                [
                    title(key),
                    shown(result.start.get(key), form(key)),
                    *(shown(result.means[key][n], form(key)) for n in names),
                ]
                for key in result.keys
            ],
        ),
        f"## Differences to {result.baseline}, in pairs",
        _table(
            ["", *others],
            [
                [title(key), *(shown(result.differences[key][n], form(key), sign=True) for n in others)]
                for key in result.keys
            ],
        ),
    ]
    if result.judged:
        rows = [
            [
                one.claim.text or str(one.claim),
                str(one.claim),
                one.claim.source,
                shown(one.value, ".3f"),
                f"**{one.verdict}**",
            ]
            for one in result.judged
        ]
        parts += ["## Claims", _table(["claim", "as tested", "source", "value", "verdict"], rows)]
    if result.tried:
        rows = [
            [one.entrant, f"`{flow(one.settings)}`", f"{one.area:.3f}", "chosen" if one.chosen else ""]
            for one in result.tried
        ]
        parts += [
            "## Tuning",
            "Area under the curve of sampled success on validation tasks, played with a seed that no run above has.",
            _table(["entrant", "settings", "area", ""], rows),
        ]
    parts += [
        "## What is measured",
        *(f"- **{m.title}**: {m.about}." for k, m in MEASURES.items() if k in result.keys),
        INTERVALS,
    ]
    parts += [
        "## Settings",
        "```yaml\n" + yaml.safe_dump(plain(result.settings), sort_keys=False, allow_unicode=True) + "```",
    ]
    return "\n\n".join(parts) + "\n"


INTERVALS = (
    "Brackets hold 95 % intervals: the expanded percentile bootstrap over seeds, and over tasks too where tasks were "
    "played; differences draw the same seeds and tasks for both. Intervals of the start are over tasks. A dash: some "
    "run cannot tell."
)


def shown(value: Interval | None, spec: str, *, sign: bool = False) -> str:
    """A mean with its interval; a dash for none."""
    if value is None:
        return "–"
    spec = f"+{spec}" if sign else spec
    return f"{value.mean:{spec}} [{value.low:{spec}}, {value.high:{spec}}]"


def flow(settings: object) -> str:
    """Settings in one line."""
    return yaml.safe_dump(plain(settings), default_flow_style=True, allow_unicode=True, width=10_000).strip()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
