"""The cost of Self-AC's values: one packed pass against a plain policy-gradient pass and against naive passes.

    python benchmarks/selfac_cost.py                    # the whole table, 15 to 30 minutes on one thread
    python benchmarks/selfac_cost.py --quick            # one size and one length, conditions twice as wide

Forward and backward of one episode: a prompt of 60 tokens, actions of 40, observations of 60, a shadow prompt of 16
under every state. LoRA trains, as in the project's runs; ``--full`` trains every parameter. The baseline is the faster
of two plain passes over the episode without shadow prompts: this project's own, and transformers' causal SDPA. All
read logits at action tokens only. Prints one table and exits with 1 where a condition does not hold.
"""

import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console

from agents.model.actor_critic import ActorCritic
from agents.tree import Batch
from agents.tree.packing import pack
from benchmarks import timing, variants
from benchmarks.timing import Spread, ratio

LARGE = "90M"
MEASURED = ("self-ac", "plain", "plain, transformers")
"""The ways whose memory is measured: for the 5M model, and for the others at 8 turns."""


@dataclass(frozen=True)
class Cost:
    """Time and memory of Self-AC relative to its baselines."""

    sizes: tuple[str, ...] = ("2M", "5M", "10M", LARGE)
    """Models, by their number of parameters."""
    turns: tuple[int, ...] = (4, 8, 16)
    """Turns of the episode; the largest model leaves out those above 8."""
    rounds: int = 7
    """How often everything is timed, in turn."""
    naive_rounds: int = 5
    """How often the naive ways are."""
    full: bool = False
    """Train every parameter instead of LoRA."""
    device: str = "cpu"
    """Where to run; ``cuda`` times with events."""
    quick: bool = False
    """A smoke run: 2M and 4 turns, limits of 1.25 instead of 1.05 and 1.10, and 0.6 instead of 0.8."""
    out: Path = Path("benchmarks/results/selfac_cost.json")
    """File for the result."""


@dataclass(frozen=True)
class Cell:
    """What was measured for one model and one length."""

    size: str
    turns: int
    rounds: int
    seconds: dict[str, Spread]
    tokens: dict[str, int]
    baseline: str
    """The faster of the two plain ways."""
    time: Spread
    """Self-AC / baseline."""
    dense: Spread
    naive: dict[str, Spread]
    """Naive ways / Self-AC."""
    memory: dict[str, int | None]

    @property
    def limit(self) -> float:
        """Self-AC / baseline in tokens."""
        return self.tokens["self-ac"] / self.tokens["plain"]

    @property
    def over(self) -> float:
        """The time ratio, relative to the token ratio."""
        return self.time.median / self.limit

    def naive_limit(self, way: str) -> float:
        return self.tokens[way] / self.tokens["self-ac"]

    @property
    def memory_ratio(self) -> float | None:
        """Peak of Self-AC / that of the leaner plain way."""
        mine, *plain = (self.memory.get(name) for name in MEASURED)
        return mine / min(p for p in plain if p) if mine and all(plain) else None


def batches(turns: int, device: str) -> tuple[Batch, Batch]:
    """The episode without and with shadow prompts."""
    root = variants.episode(turns, random.Random(0))
    return pack([root]).to(device), pack([root], variants.CRITIC_PROMPT).to(device)


def ways(turns: int, device: str) -> dict[str, tuple[variants.Way, Batch]]:
    """Every way with what it is given."""
    chain, tree = batches(turns, device)
    return {
        "plain": (variants.packed, chain),
        "plain, transformers": (variants.causal, chain),
        "self-ac": (variants.packed, tree),
        "dense mask": (variants.dense, tree),
        "naive n+1": (variants.value_passes, tree),
        "naive 2n+1": (variants.turn_passes, tree),
    }


def memory_of(size: str, turns: int, way: str, full: bool, device: str) -> tuple[timing.Program, timing.Program]:
    """(warm-up, program) for ``timing.peak_memory``."""
    model = variants.actor_critic(size, lora=not full, device=device)
    small, large = ways(1, device)[way], ways(turns, device)[way]
    return (lambda: variants.step(small[0], model, small[1])), (lambda: variants.step(large[0], model, large[1]))


def measure(model: ActorCritic, size: str, turns: int, settings: Cost) -> Cell:
    """One cell of the table."""
    device = settings.device
    given = ways(turns, device)
    tokens = {name: variants.encoded(way, model, batch) for name, (way, batch) in given.items()}
    programs = {name: (lambda w=way, b=batch: variants.step(w, model, b)) for name, (way, batch) in given.items()}
    naive = [name for name in programs if name.startswith("naive")]
    times = timing.interleaved({n: p for n, p in programs.items() if n not in naive}, settings.rounds, device)
    seconds = {name: Spread.of(values) for name, values in times.items()}
    baseline = min(("plain", "plain, transformers"), key=lambda name: seconds[name].median)
    slower = {}
    if size != LARGE or turns <= 4:  # beyond, a round takes a minute
        beside = {name: programs[name] for name in ("self-ac", *naive)}
        slow = timing.interleaved(beside, settings.naive_rounds, device, warm=0)
        slower = {name: ratio(slow[name], slow["self-ac"]) for name in naive}
        seconds |= {name: Spread.of(slow[name]) for name in naive}
    memory = {}
    if size == "5M" or turns == 8 or settings.quick:
        arguments = (settings.full, device)
        memory = {w: timing.peak_memory(memory_of, size, turns, w, *arguments, device=device) for w in MEASURED}
    return Cell(
        size=size,
        turns=turns,
        rounds=settings.rounds,
        seconds=seconds,
        tokens=tokens,
        baseline=baseline,
        time=ratio(times["self-ac"], times[baseline]),
        dense=ratio(times["dense mask"], times["self-ac"]),
        naive=slower,
        memory=memory,
    )


def conditions(cells: list[Cell], quick: bool) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    usual, highest, least = (1.25, 1.25, 0.6) if quick else (1.05, 1.10, 0.8)
    over = statistics.median(cell.over for cell in cells)
    yield f"time / token ratio of Self-AC: {over:.3f} is at most {usual} (median over the cells)", over <= usual
    for cell in cells:
        name = f"{cell.size}, {cell.turns} turns"
        yield f"{name}: time / token ratio {cell.over:.3f} is at most {highest}", cell.over <= highest
        if cell.memory_ratio is not None:
            yield f"{name}: memory ratio {cell.memory_ratio:.2f} is at most 1.35", cell.memory_ratio <= 1.35
        for way, times in cell.naive.items():
            limit = least * cell.naive_limit(way)
            yield f"{name}: {way} costs {times.median:.2f} times Self-AC, at least {limit:.2f}", times.median >= limit


def row(cell: Cell) -> list[object]:
    milliseconds = 1000 * cell.seconds[cell.baseline].median
    naive = [f"{cell.naive[w]} of {cell.naive_limit(w):.2f}" if w in cell.naive else "" for w in cell.tokens][-2:]
    megabytes = {way: used / timing.MB for way, used in cell.memory.items() if used}
    memory = f"{cell.memory_ratio:.2f} ({megabytes['self-ac']:.0f} MB)" if cell.memory_ratio else ""
    faster = "own" if cell.baseline == "plain" else "transformers"
    plain = f"{milliseconds:.0f} ms, {faster}"
    return [f"{cell.size}, {cell.turns}", plain, cell.time, cell.limit, f"{cell.over:.3f}", cell.dense, *naive, memory]


HEADINGS = (
    "model, turns",
    "plain",
    "self-ac / plain",
    "token ratio",
    "time / tokens",
    "dense / self-ac",
    "naive n+1 / self-ac",
    "naive 2n+1 / self-ac",
    "memory / plain",
)


def main() -> None:
    settings = tyro.cli(Cost)
    timing.one_thread()
    timing.keep_memory()
    console = Console(width=170)
    cells = []
    for size in ("2M",) if settings.quick else settings.sizes:
        model = variants.actor_critic(size, lora=not settings.full, device=settings.device)
        for turns in (4,) if settings.quick else settings.turns:
            if size == LARGE and turns > 8:
                continue
            cells.append(measure(model, size, turns, settings))
            console.print(*map(timing.shown, row(cells[-1])), sep=" | ", highlight=False, soft_wrap=True)
    trained = "every parameter" if settings.full else "LoRA"
    title = f"forward and backward, {trained}, {timing.hardware(settings.device)}; medians with smallest and largest"
    timing.print_table(title, HEADINGS, map(row, cells), console)
    result = {"trained": trained, "cells": [as_json(cell) for cell in cells]}
    sys.exit(timing.finish(result, conditions(cells, settings.quick), settings.out, console, settings.device))


def as_json(cell: Cell) -> dict[str, object]:
    return {**asdict(cell), "limit": cell.limit, "over": cell.over, "memory_ratio": cell.memory_ratio}


if __name__ == "__main__":
    main()
