"""What one long session costs all others: a step of 63 short sessions and a long one, against a step of 64 short ones.

    python benchmarks/stragglers.py

Where C computes the step, each session attends over its own length. Beside it stand the same steps without C, where
sessions attend in bands of similar length, and where all attend together, over the length of the longest. Random
weights, process time, one thread. The condition is that the long session makes a step at most 1.3 times as long.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
import tyro
from rich.console import Console

from agents.engine import Request
from agents.engine.decoding import Band
from agents.engine.hf import HFEngine
from benchmarks.timing import Spread, finish, interleaved, keep_memory, one_thread, print_table, ratio
from benchmarks.variants import VOCABULARY, base_model

AT_MOST = 1.3
SHORT, LONG = "64 short", "63 short, one long"
PLAIN_SHORT, PLAIN_LONG = f"without C: {SHORT}", f"without C: {LONG}"
TOGETHER = f"{PLAIN_LONG}, attending together"
CAPACITY = 4096


@dataclass(frozen=True)
class Stragglers:
    """Measure what a long session costs the others."""

    sizes: tuple[str, ...] = ("2M", "5M")
    """Models, by name."""
    sessions: int = 64
    """Sessions that decode."""
    short: int = 60
    """Tokens of a short session."""
    long: tuple[int, ...] = (1500, 3500)
    """Tokens of the long one."""
    steps: int = 10
    """Steps of a measurement."""
    rounds: int = 7
    """How often everything is measured."""
    out: Path = Path("benchmarks/results/stragglers.json")
    """File for the result."""


def decoding(size: str, lengths: Sequence[int]) -> HFEngine:
    """An engine with sessions of these lengths, all of which decode and never end."""
    engine = HFEngine(base_model(size).eval(), (), max_length=CAPACITY, slots=len(lengths))
    rng = np.random.default_rng(0)
    for session, length in enumerate(lengths):
        prompt = tuple(rng.integers(1, VOCABULARY, size=length).tolist())
        engine.submit(Request(session, prompt, CAPACITY, session))
    engine.step()
    return engine


def all_together(rows: np.ndarray, pos: np.ndarray, device: torch.device) -> list[Band]:
    return [Band(rows, pos, None, device)]


def steps(engine: HFEngine, count: int, apart: bool = True) -> Callable[[], None]:
    def program() -> None:
        for _ in range(count):
            if apart:
                engine.step()
            else:
                with patch("agents.engine.hf.bands", all_together):
                    engine.step()

    return program


def measure(settings: Stragglers, size: str, long: int) -> dict[str, Spread]:
    short = [settings.short] * settings.sessions
    mixed = [*short[1:], long]
    programs = {SHORT: steps(decoding(size, short), settings.steps), LONG: steps(decoding(size, mixed), settings.steps)}
    with patch("agents.engine.body.can_compile", lambda: False):
        programs |= {
            PLAIN_SHORT: steps(decoding(size, short), settings.steps),
            PLAIN_LONG: steps(decoding(size, mixed), settings.steps),
            TOGETHER: steps(decoding(size, mixed), settings.steps, apart=False),
        }
    times = interleaved(programs, settings.rounds)
    found = {f"{name}, ms a step": Spread.of([1000 * t / settings.steps for t in times[name]]) for name in programs}
    pairs = (LONG, SHORT), (PLAIN_LONG, PLAIN_SHORT), (TOGETHER, PLAIN_SHORT)
    return found | {f"{name} / {base}": ratio(times[name], times[base]) for name, base in pairs}


def conditions(found: Mapping[tuple[str, int], Mapping[str, Spread]]) -> Iterator[tuple[str, bool]]:
    for (size, long), figures in found.items():
        times = figures[f"{LONG} / {SHORT}"].median
        yield (
            f"{size}, a session of {long:,} tokens: a step takes {times:.2f} times, at most {AT_MOST}",
            times <= AT_MOST,
        )


def main() -> int:
    settings, console = tyro.cli(Stragglers, description=__doc__), Console()
    one_thread()
    keep_memory()
    found = {(size, long): measure(settings, size, long) for size in settings.sizes for long in settings.long}
    rows = ((f"{size}, {long:,} tokens: {name}", str(v)) for (size, long), f in found.items() for name, v in f.items())
    print_table("a step of decoding", ("", "median [range]"), rows, console)
    result: dict[str, Any] = {
        "settings": {"sessions": settings.sessions, "short": settings.short, "steps": settings.steps},
        "figures": {f"{size}, {long}": {n: asdict(v) for n, v in f.items()} for (size, long), f in found.items()},
    }
    return finish(result, conditions(found), settings.out, console)


if __name__ == "__main__":
    sys.exit(main())
