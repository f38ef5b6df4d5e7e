"""The report of a comparison as Markdown; the page is made from it."""

from collections.abc import Mapping, Sequence

import yaml

from runners.command_line.plain import plain
from runners.comparison.curves import Clock
from runners.comparison.findings import Findings
from runners.comparison.measures import MEASURES, Measure, measure_of
from runners.crediting.quality import ABOUT, ABOUT_PLAYED, TITLES
from runners.reporting.tables import NONE, cell, literal, markdown_table
from runners.statistics.intervals import Interval

INTERVALS = (
    "Brackets are 95 % intervals: the expanded percentile bootstrap over seeds, and over tasks where tasks were "
    "played; differences draw the same seeds and tasks for both. Intervals of the start are over tasks. A dash: some "
    "run has no such figure."
)
SECONDS = {
    Clock.WALL: "Seconds depend on what else the machine did, runs at once included.",
    Clock.PROCESSOR: "Seconds are the processor's, of each run's own process.",
}
VERDICTS = (
    "A claim holds when the whole interval lies on its side of the threshold, does not hold when none of it does, and "
    "is undecided otherwise, and with fewer than five seeds. *p* is that of a one-sided t-test over seeds, of what is "
    "left beyond the threshold. A primary claim was chosen before the runs and is tested alone; all others count as "
    "one of several, by Holm's method. *Corrected* says what then still holds, at 0.025. Beside the bootstrap, ratios "
    "and shares have Fieller's interval; a dash: it has no bounds."
)
SHORT = ("auc", "auc_tokens", "auc_seconds", "final_sampled", "final_greedy")
"""Measures of the short table: learning at equal steps, tokens and seconds, and where it led."""
SHORT_NOTE = (
    "Areas are at equal environment steps, sampled tokens and seconds. **Bold**: better than {baseline}, in pairs of "
    "runs of one seed, so that the interval of the difference excludes 0. *Italic*: worse."
)
DIFFERENCES = (
    "Runs of the same seed are compared. **Bold**: the interval excludes 0 and the entrant is better than the "
    "baseline. *Italic*: it is worse."
)
CREDIT_NOTE = (
    "The same episodes for everyone, played with the policy that {baseline} began from and with the one it ended with; "
    "no update comes between playing and crediting. Means over seeds. Better credit need not mean faster learning."
)
CHECKLIST = (
    "The fourteen items that [a survey of credit assignment](https://arxiv.org/abs/2604.09459) (appendix C) asks "
    "reports to tell. A star: it calls them required."
)
ENTRANTS = (
    "*Takes*: what credit needs beside a pass over what was played. *Seconds*: of playing and learning, for each "
    "environment step of its own, as a multiple of {baseline}'s, on the clock; with what a control has for nothing. "
    "*Turns* and *sampled tokens* of an episode: mean (least / median / most)."
)
TUNING = (
    "Each setting was tried with each of these seeds, which no run above has: {seeds}. It was judged by the area under "
    "the curve of sampled success on validation tasks, in the mean over them."
)


def markdown(result: Findings, pictures: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """The whole report. ``pictures``: (caption, file) by section, as `pictures.draw` returns them."""
    names = [literal(name) for name in result.figures]
    others = [name for name in result.figures if name != result.baseline]
    drawn = {key: "\n".join(f"![{about}]({file})" for about, file in files) for key, files in pictures.items()}
    parts = [
        "# Comparison",
        f"{', '.join(names)} on {literal(result.settings['compare']['env'])}: {len(result.seeds)} seeds each, "
        f"{result.env_steps:,} environment steps a run, the same tasks. The baseline is {literal(result.baseline)}.",
        *_claims(result),
        *_short(result),
        "## Success along the way",
        drawn["curves"],
        "## Measures",
        drawn["measures"],
    ]
    measures, differences = [], []
    for key, one in ((key, measure_of(key)) for key in result.keys):
        intervals = (result.start.get(key), *result.means[key].values())
        measures.append([one.title, *(cell(x, one.form) for x in intervals)])
        differences.append([one.title, *(_difference(result.differences[key][name], one) for name in others)])
    parts += [
        markdown_table(["", "start", *names], measures),
        f"## Differences to {literal(result.baseline)}, in pairs",
        markdown_table(["", *map(literal, others)], differences),
        DIFFERENCES,
    ]
    if drawn["pass"]:
        parts += ["## pass@k", drawn["pass"]]
    if result.credit:
        parts += _credit("Credit accuracy", result.credit, ABOUT, result.baseline, drawn["credit"])
    if result.credit_played:
        title = "Credit accuracy by the policy's own values"
        parts += _credit(title, result.credit_played, ABOUT_PLAYED, result.baseline)
    if result.tried:
        rows = [
            [literal(one.entrant), literal(flow(one.settings)), f"{one.area:.3f}", "chosen" if one.chosen else ""]
            for one in result.tried
        ]
        table = markdown_table(["entrant", "settings", "area", ""], rows)
        parts += ["## Tuning", TUNING.format(seeds=", ".join(map(str, result.settings["tuning_seeds"]))), table]
    parts += ["## What is measured"]
    parts += [f"- **{MEASURES[key].title}**: {MEASURES[key].about}." for key in result.keys if key in MEASURES]
    about = f"{INTERVALS} {SECONDS[Clock(result.settings['compare']['clock'])]}"
    parts += [about, *_checklist(result)]
    settings = yaml.safe_dump(plain(result.settings), sort_keys=False, allow_unicode=True)
    return "\n\n".join([*parts, "## Settings", f"```yaml\n{settings}```"]) + "\n"


def _credit(
    title: str,
    credit: Mapping[str, Mapping[str, Mapping[str, Interval | None]]],
    about: Mapping[str, str],
    baseline: str,
    pictures: str = "",
) -> list[str]:
    parts = [f"## {title}", CREDIT_NOTE.format(baseline=literal(baseline))]
    for when, figures in credit.items():
        who = next(iter(figures.values()))
        rows = [[literal(name), *(cell(values[name]) for values in figures.values())] for name in who]
        parts += [f"### {when} policy", markdown_table(["", *(TITLES[key] for key in figures)], rows)]
    return [
        *parts,
        *([pictures] if pictures else []),
        *(f"- **{TITLES[key]}**: {what}." for key, what in about.items()),
    ]


def _claims(result: Findings) -> list[str]:
    rows = []
    for one in result.judged:
        text, tested, source = map(literal, (one.claim.text or NONE, str(one.claim), one.claim.source))
        verdicts = [f"**{one.verdict}**", f"{one.corrected}{', primary' if one.claim.primary else ''}"]
        p = NONE if one.chance is None else f"{one.chance:.2g}"
        rows.append([text, *verdicts, cell(one.value), cell(one.fieller), p, tested, source])
    table = markdown_table(["claim", "verdict", "corrected", "value", "Fieller", "p", "as tested", "source"], rows)
    return ["## Claims", table, VERDICTS] if rows else []


def _short(result: Findings) -> list[str]:
    """One row an entrant."""
    rows, keys = [], [key for key in SHORT if key in result.keys]
    for name in result.figures:
        row = [literal(name)]
        for key in keys:
            one, difference = measure_of(key), result.differences[key].get(name)
            row.append(_marked(cell(result.means[key][name], one.form), difference, one))
        rows.append(row)
    table = markdown_table(["", *(measure_of(key).title for key in keys)], rows)
    return ["## In short", table, SHORT_NOTE.format(baseline=literal(result.baseline))]


def _checklist(result: Findings) -> list[str]:
    items = [
        [f"{i}{'*' * item.required}", literal(item.asked), literal(item.answer)]
        for i, item in enumerate(result.checklist.items, 1)
    ]
    rows = [
        [literal(name), one.granularity, one.methodology, literal(one.takes), f"{one.seconds:.2f}",
         *(NONE if lengths is None else str(lengths) for lengths in (one.episodes.turns, one.episodes.tokens))]
        for name, one in result.checklist.entrants.items()
    ]  # fmt: skip
    head = ["", "granularity", "family", "takes", "seconds", "turns", "sampled tokens"]
    return [
        "## Checklist",
        CHECKLIST,
        markdown_table(["", "asked", "told"], items, text=3),
        markdown_table(head, rows, text=4),
        ENTRANTS.format(baseline=literal(result.baseline)),
    ]


def _difference(value: Interval | None, measure: Measure) -> str:
    return _marked(cell(value, measure.form, sign=True), value, measure)


def _marked(text: str, difference: Interval | None, measure: Measure) -> str:
    """``text`` of an entrant that is better or worse than the baseline by this difference."""
    if difference is None or not measure.better or difference.low <= 0 <= difference.high:
        return text
    return f"**{text}**" if difference.mean * measure.better > 0 else f"*{text}*"


def flow(settings: object) -> str:
    """Settings in one line."""
    return yaml.safe_dump(plain(settings), default_flow_style=True, allow_unicode=True, width=10_000).strip()
