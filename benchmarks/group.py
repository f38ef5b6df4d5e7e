"""Savings of a shared prompt: eight completions as one tree, as padded rows, and as separate rows.

    python benchmarks/group.py                    # the whole table, about five minutes on one thread
    python benchmarks/group.py --quick            # the smallest model and the case where trees gain least, wider limits

Forward and backward, LoRA training, log-probabilities of the completions only. Padded rows have a 2D mask, as TRL's
GRPO passes them; unlike there, no logits are made for padding, which favours them. Separate rows are a pass each, with
one call for all logits. Prints one table and exits with 1 where a condition does not hold.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console

from agents.model.actor_critic import ActorCritic
from agents.tree.packing import pack
from benchmarks import timing, variants
from benchmarks.timing import Spread, ratio

GROUP = 8
CASES = ((60, 128, 128), (100, 100, 300), (400, 100, 300), (800, 60, 140))
"""(prompt, shortest, longest completion) in tokens."""
WAYS = {"tree": variants.packed, "padded": variants.padded_rows, "separate": variants.separate_rows}
LEAST = {"padded": 0.9, "separate": 0.85}
"""Share of the saved tokens that must be saved in time."""


@dataclass(frozen=True)
class GroupCost:
    """Time of a group as a tree relative to padded and to separate rows."""

    sizes: tuple[str, ...] = ("2M", "5M")
    """Models, by their number of parameters."""
    rounds: int = 7
    """How often everything is timed, in turn."""
    device: str = "cpu"
    """Where to run; ``cuda`` times with events."""
    quick: bool = False
    """A smoke run: 2M, the first case, three quarters of the limits."""
    out: Path = Path("benchmarks/results/group.json")
    """File for the result."""


@dataclass(frozen=True)
class Cell:
    """What was measured for one model and one case."""

    size: str
    prompt: int
    completions: list[int]
    seconds: dict[str, Spread]
    tokens: dict[str, int]
    gain: dict[str, Spread]
    """Time of the other ways / the tree's."""

    @property
    def name(self) -> str:
        return f"{self.size}, prompt {self.prompt}, completions {min(self.completions)}-{max(self.completions)}"

    def limit(self, way: str) -> float:
        """The same in tokens."""
        return self.tokens[way] / self.tokens["tree"]


def lengths(shortest: int, longest: int, rng: random.Random) -> list[int]:
    """Completion lengths, both ends among them."""
    return [shortest, longest, *(rng.randint(shortest, longest) for _ in range(GROUP - 2))]


def measure(model: ActorCritic, size: str, case: tuple[int, int, int], settings: GroupCost) -> Cell:
    """One cell of the table."""
    rng = random.Random(0)
    completions = lengths(case[1], case[2], rng)
    batch = pack([variants.group(case[0], completions, rng)]).to(settings.device)
    tokens = {name: variants.encoded(way, model, batch) for name, way in WAYS.items()}
    programs = {name: (lambda w=way: variants.step(w, model, batch)) for name, way in WAYS.items()}
    times = timing.interleaved(programs, settings.rounds, settings.device)
    seconds = {name: Spread.of(values) for name, values in times.items()}
    gain = {name: ratio(times[name], times["tree"]) for name in LEAST}
    return Cell(size, case[0], completions, seconds, tokens, gain)


def conditions(cells: list[Cell], quick: bool) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    wide = 0.75 if quick else 1.0
    for cell in cells:
        for way, share in LEAST.items():
            gain, limit = cell.gain[way].median, cell.limit(way)
            least = wide * max(share * limit, 1.0)
            yield f"{cell.name}: {gain:.2f} times as fast as {way} rows, at least {least:.2f}", gain >= least


def row(cell: Cell) -> list[object]:
    gains = [x for way in LEAST for x in (cell.gain[way], cell.limit(way), cell.gain[way].median / cell.limit(way))]
    return [cell.name, f"{1000 * cell.seconds['tree'].median:.0f} ms", *gains]


def main() -> None:
    settings = tyro.cli(GroupCost)
    timing.one_thread()
    timing.keep_memory()
    console = Console(width=150)
    cells = []
    for size in ("2M",) if settings.quick else settings.sizes:
        model = variants.actor_critic(size, device=settings.device)
        for case in CASES[:1] if settings.quick else CASES:
            cells.append(measure(model, size, case, settings))
            console.print(*map(timing.shown, row(cells[-1])), sep=" | ", highlight=False, soft_wrap=True)
    title = f"a group of {GROUP}, forward and backward, {timing.hardware(settings.device)}; the tree's gain over"
    headings = (
        "",
        "tree",
        "padded rows",
        "token ratio",
        "time / tokens",
        "separate rows",
        "token ratio",
        "time / tokens",
    )
    timing.print_table(title, headings, map(row, cells), console)
    result = {"trained": "LoRA", "rounds": settings.rounds, "cells": [asdict(cell) for cell in cells]}
    sys.exit(timing.finish(result, conditions(cells, settings.quick), settings.out, console, settings.device))


if __name__ == "__main__":
    main()
