"""The claims of all recorded studies, each as one of the claims of its study: corrected for their number, by Fieller.

    python benchmarks/judged_again.py      # seconds

Reads ``runs.csv`` of every study in ``benchmarks/results/``, and the claims of its settings file that it has runs for.
A run has one number of each measure there, so intervals are over seeds alone; those of a study's own report are over
tasks too.
"""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
import yaml
from rich.console import Console

from benchmarks.timing import print_table
from runners.command_line.plain import dump_json
from runners.comparison.claims import Judged, judge_all, read_claims
from runners.comparison.measures import Figures
from runners.reporting.tables import NONE, cell

AGAIN = "-again"
"""End of the name of a study that was repeated, with other seeds or from other weights."""


@dataclass(frozen=True)
class JudgedAgain:
    """Judge the claims of recorded studies."""

    studies: Path = Path("benchmarks/studies")
    """Folder of their settings."""
    results: Path = Path("benchmarks/results")
    """Folder of their figures."""
    out: Path = Path("benchmarks/results/claims.json")
    """File for the result."""


def figures_of(file: Path) -> dict[str, dict[int, Figures]]:
    """What ``runs.csv`` has of each entrant and seed."""
    found: dict[str, dict[int, Figures]] = {}
    for row in csv.DictReader(file.open(encoding="utf-8")):
        entrant, _, seed = row.pop("entrant"), row.pop("algo"), int(row.pop("seed"))
        found.setdefault(entrant, {})[seed] = {key: [float(x) if x else float("nan")] for key, x in row.items()}
    return found


def judged(settings: JudgedAgain) -> Iterator[tuple[str, list[Judged]]]:
    """(study, its claims), of every study that has both."""
    for file in sorted(settings.results.glob("*/runs.csv")):
        study = file.parent.name
        source = settings.studies / f"{study.removesuffix(AGAIN)}.yaml"
        claims = yaml.safe_load(source.read_text("utf-8")).get("claims") if source.is_file() else None
        if claims:
            figures = figures_of(file)
            measures = list(next(iter(next(iter(figures.values())).values())))
            told = [c for c in claims if about(c) <= set(figures) and c["measure"] in measures]
            yield study, judge_all(read_claims(told, list(figures), measures), figures)


def about(claim: dict[str, Any]) -> set[str]:
    """The entrants that a claim needs: those that were added to a study later have no figures in its first report."""
    return {claim[role] for role in ("entrant", "against", "of") if role in claim}


def plain(one: Judged) -> dict[str, Any]:
    return {"claim": str(one.claim), "text": one.claim.text, **one.plain()}


def main() -> None:
    settings, console = tyro.cli(JudgedAgain, description=__doc__), Console(width=200)
    found = dict(judged(settings))
    for study, claims in found.items():
        rows = [
            (str(one.claim), one.verdict, one.corrected, cell(one.value), cell(one.fieller),
             NONE if one.chance is None else f"{one.chance:.2g}")
            for one in claims
        ]  # fmt: skip
        print_table(study, ("claim", "alone", "corrected", "bootstrap", "Fieller", "p"), rows, console)
    settings.out.write_text(
        dump_json({study: [plain(one) for one in claims] for study, claims in found.items()}), "utf-8"
    )


if __name__ == "__main__":
    main()
