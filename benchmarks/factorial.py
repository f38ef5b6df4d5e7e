"""What each part of a critic is worth: the effects of a factorial study, by method.

    python benchmarks/factorial.py --folder benchmarks/results/corridor-factorial      # seconds

Reads ``runs.csv`` of a study whose entrants are named METHOD, then the factors in which they differ from it:
``turn_ppo_bare_replay``. The effect of a factor is the measure with it less that without, a mean over the settings of
the other factors; that of two together is half of how much the one gains more where the other is there. Both are worked
out seed by seed; intervals are Student's over seeds, and Holm's method corrects all effects of a measure.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from math import prod, sqrt
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import tyro
from rich.console import Console

from benchmarks.judged_again import figures_of
from benchmarks.timing import print_table
from runners.command_line.plain import dump_json
from runners.comparison.measures import Figures
from runners.reporting.tables import cell
from runners.statistics.contrasts import Seeds, chance, holm
from runners.statistics.intervals import Interval, student_t

FACTORS: Mapping[str, Sequence[str]] = {
    "selfac": ("bare", "detached", "td2", "replay"),
    "turn_ppo": ("bare", "detached", "replay"),
    "ppo": ("replay",),
}
"""The factors of each method, in the order of its entrants' names."""
MEASURES = ("auc", "auc_tokens", "auc_seconds", "final_sampled")


@dataclass(frozen=True)
class Factorial:
    """Work out the effects of a factorial study."""

    folder: Path = Path("benchmarks/results/corridor-factorial")
    """Folder with ``runs.csv``, in which ``effects.json`` is written."""


@dataclass(frozen=True)
class Effect:
    """What one factor, or two together, change in a measure."""

    method: str
    measure: str
    factors: str
    value: Interval
    chance: float
    """Two-sided p of a t-test over seeds, corrected by Holm's method over all effects of the measure."""


def cells(method: str) -> dict[str, tuple[int, ...]]:
    """The entrants of a method: by name, 1 for each factor that is there."""
    factors = FACTORS[method]
    return {
        "_".join([method, *(name for name, there in zip(factors, levels, strict=True) if there)]): levels
        for levels in product((0, 1), repeat=len(factors))
    }


def contrast(figures: Mapping[str, Mapping[int, Figures]], method: str, measure: str, of: Sequence[str]) -> Seeds:
    """The effect of one factor or of two together, by seed. Raises KeyError for an entrant that has no runs."""
    named = cells(method)
    places = [FACTORS[method].index(name) for name in of]
    seeds = sorted(set.intersection(*(set(figures[name]) for name in named)))
    signs = {name: prod(2 * levels[place] - 1 for place in places) for name, levels in named.items()}
    sums = [sum(sign * figures[name][seed][measure][0] for name, sign in signs.items()) for seed in seeds]
    return np.asarray(sums) / (len(named) / 2)


def effects(figures: Mapping[str, Mapping[int, Figures]], measure: str) -> Iterator[Effect]:
    """All effects of one measure, main ones first."""
    found = [
        (method, " × ".join(of), contrast(figures, method, measure, of))
        for method, factors in FACTORS.items()
        for size in (1, 2)
        for of in combinations(factors, size)
    ]
    chances = holm([2 * min(chance(gain_S), chance(-gain_S)) for *_, gain_S in found])
    for (method, of, gain_S), corrected in zip(found, chances, strict=True):
        mean = float(gain_S.mean())
        half = student_t(gain_S.size - 1) * float(gain_S.std(ddof=1)) / sqrt(gain_S.size)
        yield Effect(method, measure, of, Interval(mean, mean - half, mean + half), corrected)


def main() -> None:
    settings, console = tyro.cli(Factorial, description=__doc__), Console(width=120)
    figures = figures_of(settings.folder / "runs.csv")
    found = [effect for measure in MEASURES for effect in effects(figures, measure)]
    for measure in MEASURES:
        rows = [(e.method, e.factors, cell(e.value, "+.3f"), f"{e.chance:.2g}") for e in found if e.measure == measure]
        print_table(measure, ("method", "factor", "effect", "p, corrected"), rows, console)
    (settings.folder / "effects.json").write_text(dump_json([asdict(effect) for effect in found]), "utf-8")


if __name__ == "__main__":
    main()
