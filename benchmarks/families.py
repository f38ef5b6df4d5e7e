"""All recorded families side by side: what each method gains over REINFORCE at equal steps, tokens and seconds.

    python benchmarks/families.py      # seconds

Reads ``runs.csv`` of the studies in ``benchmarks/results/``. A difference is that of two runs of one seed in one study;
where a family was studied twice, all its pairs count. Intervals are over seeds alone. Nothing is corrected for the
number of methods.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import tyro
from rich.console import Console

from benchmarks.judged_again import figures_of
from benchmarks.timing import print_table
from runners.command_line.plain import dump_json
from runners.reporting.tables import cell
from runners.statistics.intervals import Interval, over_seeds

STEPS = "auc"
MEASURES = {STEPS: "equal steps", "auc_tokens": "equal tokens", "auc_seconds": "equal seconds"}
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "corridor": ("corridor-factorial", "corridor-factorial-again"),
    "wiki": ("wiki", "wiki-again", "wiki-lift", "wiki-lambda", "wiki-critic", "wiki-follows"),
    "BabyAI": ("babyai",),
    "TextWorld-Express": (
        "textworld-express",
        "textworld-express-centred",
        "textworld-express-control",
        "textworld-express-lift",
        "textworld-express-lambda",
        "textworld-express-follows",
    ),
    "household": ("household", "household-follows"),
}
"""The studies of each."""
CALLED: Mapping[str, Mapping[str, str]] = {
    **{study: {"selfac": "selfac_lift"} for study in ("wiki-lambda", "textworld-express-lambda")},
    **{f"{family}-follows": {"selfac": "selfac_lift"} for family in ("wiki", "textworld-express", "household")},
    "wiki-critic": {"selfac": "selfac_lift", "selfac_replay": "selfac_lift_replay"},
}
"""Entrants of a study that have another name elsewhere: since `lift` is the default, it need not be said."""
METHODS: Mapping[str, tuple[str, ...]] = {
    "GRPO": ("grpo",),
    "RLOO": ("rloo",),
    "GiGPO": ("gigpo_std", "gigpo"),
    "ARPO": ("arpo",),
    "PACS": ("pacs",),
    "ADCA": ("adca",),
    "PPO": ("ppo",),
    "Turn-PPO": ("turn_ppo",),
    "Turn-PPO, replayed": ("turn_ppo_replay",),
    "Self-AC": ("selfac",),
    "Self-AC, replayed": ("selfac_replay",),
    "Self-AC, lifted": ("selfac_lift",),
    "Self-AC, lifted, lambda 0.9": ("selfac_lambda",),
    "Self-AC, lifted, lambda follows": ("selfac_follows",),
    "Self-AC, centred, lambda 0.9": ("selfac_credit",),
    "VinePPO, paid": ("vineppo",),
    "the control": ("exact_critic", "free_values", "control"),
}
"""The names that each has in the studies; of two in one study the first is meant, which its tuning preferred."""
BASELINE = "reinforce"


@dataclass(frozen=True)
class Families:
    """Compare recorded families."""

    results: Path = Path("benchmarks/results")
    """Folder of their figures."""
    out: Path = Path("benchmarks/results/families.json")
    """File for the result."""


@dataclass(frozen=True)
class Gain:
    """Of a method over REINFORCE in a family."""

    pairs: int
    interval: Interval


def gain(folders: Sequence[Path], names: Sequence[str], measure: str) -> Gain | None:
    """Over all pairs of these studies; None with fewer than two. A pair of runs that two studies share is one."""
    pairs: dict[tuple[float, ...], float] = {}
    for folder in folders:
        called = CALLED.get(folder.name, {})
        figures = {called.get(name, name): of for name, of in figures_of(folder / "runs.csv").items()}
        mine, others = figures.get(next(filter(figures.__contains__, names), ""), {}), figures[BASELINE]
        for seed in sorted(mine.keys() & others.keys()):
            run, other = mine[seed], others[seed]
            pairs[seed, run[STEPS][0], other[STEPS][0]] = run[measure][0] - other[measure][0]
    interval = over_seeds([np.array(list(pairs.values()))[:, None]]) if len(pairs) > 1 else None
    return None if interval is None else Gain(len(pairs), interval)


def gains(results: Path) -> dict[str, dict[str, dict[str, Gain]]]:
    """By measure, method and family; what was not studied is left out."""
    found: dict[str, dict[str, dict[str, Gain]]] = {}
    for measure, (method, names), (family, studies) in product(MEASURES, METHODS.items(), FAMILIES.items()):
        if one := gain([results / study for study in studies], names, measure):
            found.setdefault(MEASURES[measure], {}).setdefault(method, {})[family] = one
    return found


def main() -> None:
    settings, console = tyro.cli(Families, description=__doc__), Console(width=160)
    found = gains(settings.results)
    for said, methods in found.items():
        rows = (
            (name, *(cell(of[family].interval if family in of else None, sign=True) for family in FAMILIES))
            for name, of in methods.items()
        )
        print_table(f"gain over REINFORCE, area at {said}", ("", *FAMILIES), rows, console)
    settings.out.write_text(dump_json({"studies": FAMILIES, "gains": found}), "utf-8")


if __name__ == "__main__":
    main()
