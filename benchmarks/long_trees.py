"""Very long episodes: what Self-AC's values cost in memory, and what the attention's plan costs in time.

    python benchmarks/long_trees.py                    # 16 and 320 turns in a 2M model, about five minutes
    python benchmarks/long_trees.py --turns 4          # seconds

Forward and backward of one episode with LoRA, in a process of its own for each peak. The plan of a row says which
rows see which keys, and is made once a pass. Exits with 1 where a condition does not hold.
"""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console

from agents.compiled import tree_attention
from agents.model.attention.blocks import TreePlan
from agents.model.attention.compiled import CompiledPlan
from agents.tree import Batch
from agents.tree.packing import pack
from benchmarks import timing, variants

MEMORY_AT_MOST, PLAN_AT_MOST = 1.25, 0.02


@dataclass(frozen=True)
class LongTrees:
    """Measure long episodes."""

    size: str = "2M"
    """The model, by the parameters of its layers."""
    turns: tuple[int, ...] = (16, 320)
    """Turns of the episode."""
    out: Path = Path("benchmarks/results/long_trees.json")
    """File for the result."""


@dataclass(frozen=True)
class Cell:
    """What was measured at one length."""

    turns: int
    tokens: int
    plain: int | None
    """Peak memory of a pass without values, in bytes."""
    selfac: int | None
    pass_seconds: float
    """Process time of a pass with values."""
    plan_seconds: float
    """Process time of its plan, which is part of it."""

    @property
    def memory(self) -> float | None:
        """Self-AC / plain."""
        return self.selfac / self.plain if self.selfac and self.plain else None

    @property
    def plan(self) -> float:
        """Share of the plan in the pass."""
        return self.plan_seconds / self.pass_seconds


def batch_of(turns: int, values: bool) -> Batch:
    return pack([variants.episode(turns, random.Random(0))], variants.CRITIC_PROMPT if values else None)


def memory_of(size: str, turns: int, values: bool) -> tuple[timing.Program, timing.Program]:
    """(warm-up, program) for ``timing.peak_memory``."""
    model = variants.actor_critic(size)
    small, large = batch_of(1, values), batch_of(turns, values)
    return (lambda: variants.step(variants.packed, model, small)), (
        lambda: variants.step(variants.packed, model, large)
    )


def plan_seconds(batch: Batch) -> float:
    """Of the plan that a run on this machine makes."""
    compiled = not tree_attention.missing()
    start = time.process_time()
    if compiled:
        _ = CompiledPlan(batch.pos_T, batch.end_T, by_chains=True).seen
    else:
        TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(None, torch.float32)
    return time.process_time() - start


def measure(size: str, turns: int) -> Cell:
    batch = batch_of(turns, values=True)
    warm_up, program = memory_of(size, turns, True)
    warm_up()
    plan = min(plan_seconds(batch) for _ in range(3))
    plain, selfac = (timing.peak_memory(memory_of, size, turns, values) for values in (False, True))
    return Cell(turns, len(batch), plain, selfac, timing.seconds(program), plan)


def conditions(cells: Sequence[Cell]) -> Iterator[tuple[str, bool]]:
    for cell in cells:
        if cell.memory is not None:
            yield (
                f"{cell.turns} turns: Self-AC's peak is {cell.memory:.2f} times plain, at most {MEMORY_AT_MOST}",
                cell.memory <= MEMORY_AT_MOST,
            )
        yield (
            f"{cell.turns} turns: the plan takes {cell.plan:.2%} of a pass, at most {PLAN_AT_MOST:.0%}",
            cell.plan <= PLAN_AT_MOST,
        )


def row(cell: Cell) -> list[str]:
    plain, selfac = (f"{peak / timing.MB:,.0f} MB" if peak else "" for peak in (cell.plain, cell.selfac))
    times = f"{cell.memory:.2f}" if cell.memory else ""
    return [
        *(f"{cell.turns}", f"{cell.tokens:,}", plain, selfac, times),
        *(f"{cell.pass_seconds:.1f} s", f"{1000 * cell.plan_seconds:.0f} ms", f"{cell.plan:.2%}"),
    ]


HEADINGS = ("turns", "tokens", "plain", "self-ac", "times", "a pass", "its plan", "share")


def main() -> int:
    settings, console = tyro.cli(LongTrees, description=__doc__), Console()
    timing.one_thread()
    timing.keep_memory()
    cells = [measure(settings.size, turns) for turns in settings.turns]
    title = f"one episode, {settings.size}, forward and backward, {timing.hardware('cpu')}"
    timing.print_table(title, HEADINGS, map(row, cells), console)
    result = {"size": settings.size, "cells": [asdict(cell) for cell in cells]}
    return timing.finish(result, conditions(cells), settings.out, console)


if __name__ == "__main__":
    sys.exit(main())
