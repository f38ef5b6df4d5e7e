"""Every measured figure of README.md and docs/ is that of a result file, or stands in a section that says it has none.

`documented_figures.yaml` lists the figures of each section by result file, as they are printed. A figure is a decimal
number of two places or more, with its interval where one follows. A section that prints others says "no result file";
so does the first section of a page none of whose figures has one. Figures that are computed from a file's columns are
computed here.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml

from runners.comparison.measures import interval

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
LISTED = yaml.safe_load((ROOT / "tests" / "documented_figures.yaml").read_text("utf-8"))
NUMBER = r"[+\-−]?\d+\.\d+"
FIGURE = re.compile(rf"(?<![\w.\-/§])[+\-−]?\d+\.\d\d+(?: \[{NUMBER}, {NUMBER}\])?(?!\w|\.\d)")
UNMEASURED = "no result file"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.S)


def sections(text: str) -> dict[str, str]:
    """What stands under each heading, code left out."""
    parts = re.split(r"(?m)^(?=#+ )", without_code(text))
    return {part.splitlines()[0].lstrip("# "): part for part in parts if part.strip()}


@cache
def plain(section: str) -> str:
    """Its prose and tables in whole lines, without names in code."""
    return re.sub(r"\n(?![\n|#])\s*", " ", re.sub(r"`[^`\n]*`", "`", section))


def figures(section: str) -> Counter[str]:
    return Counter(FIGURE.findall(plain(section)))


@cache
def members(name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(all numbers, means or medians with their intervals) of a result file, as rows."""
    text = (RESULTS / name).read_text("utf-8").replace("−", "-")
    if name.endswith(".json"):
        found = list(walked(json.loads(text)))
    else:
        whole = re.findall(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]", text)
        found = [
            *(tuple(map(float, x)) for x in whole),
            *((float(x),) for x in re.findall(r"[+\-]?\d+(?:\.\d+)?", text)),
        ]
    numbers, intervals = ([x for x in found if len(x) == n] for n in (1, 3))
    return np.array(numbers).reshape(-1, 1), np.array(intervals).reshape(-1, 3)


def walked(x: Any) -> Iterator[tuple[float, ...]]:
    if isinstance(x, dict):
        for middle in ("mean", "median"):
            if {middle, "low", "high"} <= set(x):
                yield tuple(float(x[key]) for key in (middle, "low", "high"))
        for value in x.values():
            yield from walked(value)
    elif isinstance(x, list):
        for value in x:
            yield from walked(value)
    elif isinstance(x, str):
        yield from ((float(number),) for number in re.findall(NUMBER, x))
    elif isinstance(x, int | float) and not isinstance(x, bool):
        yield from ((float(x),), (x / 1e9,))  # bytes are printed in GB


def same(figure: str, exact: npt.NDArray[np.float64]) -> bool:
    """Whether rounding one row of ``exact`` gives what is printed; a tie may go either way.

    A number without an interval may be printed without its sign.
    """
    printed = np.array([float(x.replace("−", "-")) for x in re.findall(NUMBER, figure)])
    if len(printed) == 1:
        printed, exact = np.abs(printed), np.abs(exact)
    near = 0.5 * 10.0 ** -len(figure.partition(".")[2].partition(" ")[0]) + 1e-9
    return bool((np.abs(exact - printed) <= near).all(axis=1).any())


@cache
def in_file(figure: str, name: str) -> bool:
    return same(figure, members(name)["[" in figure])


def share(spec: dict[str, Any]) -> npt.NDArray[np.float64]:
    """The share of a gap that an entrant closes, with its interval over seeds, from a study's runs."""
    rows = list(csv.DictReader((RESULTS / spec["file"]).open(encoding="utf-8")))
    seeds = sorted({int(row["seed"]) for row in rows} - set(spec.get("without", ())))
    found_at = {(row["entrant"], int(row["seed"])): float(row[spec["measure"]] or "nan") for row in rows}
    who = (spec["entrant"], spec["against"], spec["of"])
    grids = [np.array([[found_at[name, seed]] for seed in seeds]) for name in who]
    found = interval(*grids, combine=lambda a, b, c: (a - b) / (c - b))
    assert found is not None
    return np.array([[found.mean, found.low, found.high]])


def sections_of(page: str) -> list[Mapping[str, Sequence[str]]]:
    return [] if page == "shares" else list(LISTED[page].values())


def check(page: str, text: str) -> None:
    """Raises AssertionError unless the figures of the page are those of its files."""
    parts, listed = sections(text), LISTED.get(page, {})
    assert set(listed) <= set(parts), f"{page} has no section {set(listed) - set(parts)}"
    whole = not listed and says_so(next(iter(parts.values())))
    for heading, section in parts.items():
        check_section(f"{page}, {heading}", section, listed.get(heading, {}), whole or says_so(section))


def says_so(section: str) -> bool:
    return UNMEASURED in " ".join(section.split())


def check_section(where: str, section: str, listed: Mapping[str, Sequence[str]], unmeasured: bool) -> None:
    left = figures(section)
    for name, printed in listed.items():
        left.subtract(Counter(printed))
        if name not in ("settings", "shares"):
            wrong = [figure for figure in printed if not in_file(figure, name)]
            assert not wrong, f"{where}: {wrong} are not in benchmarks/results/{name}"
    gone = [figure for figure, n in left.items() if n < 0]
    assert not gone, f"{where}: {gone} are listed in tests/documented_figures.yaml and not printed"
    rest = [figure for figure, n in left.items() if n > 0]
    assert not rest or unmeasured, (
        f"{where}: {rest} are of no file: list them in tests/documented_figures.yaml, or write {UNMEASURED!r} there"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_figures_are_those_of_their_files(page: Path) -> None:
    check(page.relative_to(ROOT).as_posix(), page.read_text("utf-8"))


@pytest.mark.parametrize("page", sorted(set(LISTED) - {"shares"}))
def test_one_digit_is_noticed(page: str) -> None:
    """In each listed figure of the page."""
    parts = sections((ROOT / page).read_text("utf-8"))
    for heading, files in LISTED[page].items():
        for figure in {x for name, printed in files.items() if name != "settings" for x in printed}:
            last = figure.removesuffix("]")
            changed = last[:-1] + str((int(last[-1]) + 1) % 10) + figure[len(last) :]
            whole = plain(parts[heading])
            place = next(found.span() for found in FIGURE.finditer(whole) if found.group() == figure)
            broken = whole[: place[0]] + changed + whole[place[1] :]
            with pytest.raises(AssertionError, match="listed"):
                check_section(page, broken, files, unmeasured=True)


@pytest.mark.parametrize("spec", LISTED["shares"], ids=lambda spec: spec["printed"])
def test_shares_are_computed_from_the_runs(spec: dict[str, Any]) -> None:
    assert same(spec["printed"], share(spec))
    assert any(spec["printed"] in files.get("shares", ()) for page in LISTED for files in sections_of(page))
    other = {**spec, "against": "exact_critic", "of": spec["against"]}
    assert not same(spec["printed"], share(other))


def test_a_file_with_other_figures_is_noticed() -> None:
    assert in_file("0.772 [0.728, 0.820]", "search-countdown.json")
    assert not in_file("0.857 [0.822, 0.889]", "search-countdown.json")
    assert not in_file("0.772 [0.728, 0.820]", "search-game24.json")
