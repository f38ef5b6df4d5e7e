"""The report of a comparison as Markdown, and the sentences that both reports share."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from runners.command_line.plain import plain
from runners.comparison.findings import Findings
from runners.comparison.measures import MEASURES, form, title
from runners.crediting.quality import ABOUT, TITLES
from runners.statistics.intervals import Interval

INTERVALS = (
    "Brackets and small figures are 95 % intervals: the expanded percentile bootstrap over seeds, and over tasks too "
    "where tasks were played; differences draw the same seeds and tasks for both. Intervals of the start are over "
    "tasks. A dash: some run cannot tell. Seconds depend on what else the machine did, runs at once included."
)
VERDICTS = (
    "A claim holds when the whole interval lies on its side of the threshold, does not hold when none of it does, and "
    "is undecided otherwise, and with fewer than five seeds."
)
CREDIT_NOTE = (
    "The same episodes for everyone, played with the policy that {baseline} began from and with the one it ended with; "
    "no update comes between playing and crediting. Means over seeds. Better credit need not mean faster learning."
)


def headline(result: Findings) -> str:
    """What was compared, in one sentence."""
    return (
        f"{', '.join(result.figures)} on {result.settings['compare']['env']}: {len(result.seeds)} seeds each, "
        f"{result.env_steps:,} environment steps a run, the same tasks. The baseline is {result.baseline}."
    )


def about_tuning(result: Findings) -> str:
    return (
        f"Each setting was tried once with seed {len(result.seeds)}, which no run above has, and judged by the area "
        "under the curve of sampled success on validation tasks."
    )


def markdown(result: Findings) -> str:
    """The whole report."""
    names = list(result.figures)
    others = [name for name in names if name != result.baseline]
    parts = ["# Comparison", headline(result)]
    if result.judged:
        rows = [
            [one.claim.text or "–", f"**{one.verdict}**", shown(one.value, ".3f"), str(one.claim), one.claim.source]
            for one in result.judged
        ]
        parts += ["## Claims", _table(["claim", "verdict", "value", "as tested", "source"], rows), VERDICTS]
    measures = [
        [title(key), shown(result.start.get(key), form(key)), *(shown(result.means[key][n], form(key)) for n in names)]
        for key in result.keys
    ]
    differences = [
        [title(key), *(shown(result.differences[key][n], form(key), sign=True) for n in others)] for key in result.keys
    ]
    parts += ["## Measures", _table(["", "start", *names], measures)]
    parts += [f"## Differences to {result.baseline}, in pairs", _table(["", *others], differences)]
    if result.credit:
        parts += ["## Credit accuracy", CREDIT_NOTE.format(baseline=result.baseline)]
        for when, told in result.credit.items():
            who = list(next(iter(told.values())))
            rows = [[TITLES[key], *(shown(told[key][n], ".3f") for n in who)] for key in told]
            parts += [f"### {when} policy", _table(["", *who], rows)]
        parts.append("\n".join(f"- **{TITLES[key]}**: {about}." for key, about in ABOUT.items()))
    if result.tried:
        rows = [
            [one.entrant, f"`{flow(one.settings)}`", f"{one.area:.3f}", "chosen" if one.chosen else ""]
            for one in result.tried
        ]
        parts += ["## Tuning", about_tuning(result), _table(["entrant", "settings", "area", ""], rows)]
    told_of = [f"- **{MEASURES[key].title}**: {MEASURES[key].about}." for key in result.keys if key in MEASURES]
    parts += ["## What is measured", "\n".join(told_of), INTERVALS]
    settings = yaml.safe_dump(plain(result.settings), sort_keys=False, allow_unicode=True)
    return "\n\n".join([*parts, "## Settings", f"```yaml\n{settings}```"]) + "\n"


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
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
