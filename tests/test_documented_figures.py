"""The learning figures of README.md and docs/learning.md are those of their result file."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULT, RESEARCH = (
    json.loads((ROOT / "benchmarks" / "results" / f"learning-{recipe}.json").read_text("utf-8"))
    for recipe in ("wiki", "research")
)
PHASES = [(when, how) for when in ("start", "final") for how in ("sampled", "greedy")]


def rows_of(text: str, header: str) -> dict[str, list[str]]:
    """The rows of the one table whose header has that first cell, by first cell."""
    table = next(part for part in text.split("\n\n") if part.startswith(f"| {header} |"))
    rows = [
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in table.splitlines()[2:]
    ]
    return {row[0]: row[1:] for row in rows}


def cell(figure: Mapping[str, float]) -> str:
    return f"{figure['mean']:.2f} [{figure['low']:.2f}, {figure['high']:.2f}]"


def spread(means: list[float]) -> str:
    low, high = f"{min(means):.2f}", f"{max(means):.2f}"
    return low if low == high else f"{low}–{high}"


def check_readme(text: str, result: Mapping[str, Any]) -> None:
    """Every algorithm's row: the means of its seeds, before and after."""
    runs: dict[str, list[Any]] = {}
    for name, run in result["runs"].items():
        runs.setdefault(name.rpartition("-")[0], []).append(run)
    expected = {
        name: [spread([run[when][how]["mean"] for run in mine]) for when, how in PHASES] for name, mine in runs.items()
    }
    assert rows_of(text, "wiki") == expected


def check_page(text: str, result: Mapping[str, Any]) -> None:
    """Every run with its intervals and seconds, and the agents beside them."""
    expected = {
        name.replace("-", ", seed "): [*(cell(run[when][how]) for when, how in PHASES), f"{run['seconds']:.0f}"]
        for name, run in result["runs"].items()
    }
    expected |= {name: ["", "", cell(figure), "", ""] for name, figure in result["others"].items()}
    assert rows_of(text.replace("\n| | start", "\n| run | start"), "run") == expected


@pytest.mark.parametrize(
    ("page", "check", "result"),
    [
        ("README.md", check_readme, RESULT),
        ("docs/learning.md", check_page, RESULT),
        ("docs/research.md", check_page, RESEARCH),
    ],
)
def test_the_figures_are_those_of_the_file(page: str, check: Any, result: Mapping[str, Any]) -> None:
    text = (ROOT / page).read_text("utf-8")
    check(text, result)
    table = text[text.index("| selfac") :]
    figure = re.search(r"0\.\d\d", table)
    assert figure is not None
    changed = text[: text.index("| selfac")] + table.replace(figure.group(), "0.91", 1)
    with pytest.raises(AssertionError):
        check(changed, result)


def test_a_run_more_is_noticed() -> None:
    more = RESULT | {"runs": RESULT["runs"] | {"grpo-3": RESULT["runs"]["selfac-0"]}}
    with pytest.raises(AssertionError):
        check_page((ROOT / "docs" / "learning.md").read_text("utf-8"), more)
