"""Runs a second in the sandbox, with one worker and with two, and what keeps two from being twice as many.

Invariant: one worker and two are measured in turn, on the same runs. Processor time is that of everybody who works for
a run: the program, its supervisor, those who fork them, and this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent_envs.code.sandbox import SandboxJob
from agent_envs.code.sandbox.local import NamespaceSandbox
from benchmarks.timing import Spread, ratio

ARGV = ("python", "-c", "print(1)")
PINNED, ONE, TWO = "one worker on one processor", "one worker", "two workers"
FIELDS = ("per_second", "cpu_ms", "busy")
TURNS = 5
"""How often each of them is measured."""


@dataclass(frozen=True)
class Rates:
    """What was measured, turn by turn."""

    per_second: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """Processor time of a run in ms."""
    busy: list[float] = field(default_factory=list)
    """Processors kept busy."""

    def spread(self, what: str) -> Spread:
        return Spread.of(getattr(self, what))

    def against(self, other: Rates, what: str) -> Spread:
        return ratio(getattr(self, what), getattr(other, what))

    def add(self, sandbox: NamespaceSandbox, count: int) -> None:
        """Measures ``count`` runs, as many at a time as the sandbox has workers."""
        before, started = _cpu(sandbox.pid), time.perf_counter()
        results = sandbox.run_many([SandboxJob(ARGV)] * count)
        taken = time.perf_counter() - started
        used = _cpu(sandbox.pid) - before
        assert all(result.stdout == b"1\n" for result in results)
        self.per_second.append(count / taken)
        self.cpu_ms.append(1000 * used / count)
        self.busy.append(used / taken)


@contextmanager
def processors(count: int | None) -> Iterator[None]:
    """Inside, this process and all it starts have this many processors; None for all."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def throughputs(count: int) -> dict[str, Rates]:
    """Of one worker on one processor, of one worker and of two, in turn.

    One worker keeps more than one processor busy: while a program runs, the next supervisor is made and the last one
    taken apart. Beside one worker on one processor, two on two show whether they are in each other's way.
    """
    settings: dict[str, tuple[int, int | None]] = {PINNED: (1, 1), ONE: (1, None), TWO: (2, None)}
    measured: dict[str, Rates] = {name: Rates() for name in settings}
    with ExitStack() as stack:
        walls = {}
        for name, (workers, on) in settings.items():
            with processors(on):
                walls[name] = stack.enter_context(NamespaceSandbox(workers=workers))
                walls[name].run(ARGV)
        for _ in range(TURNS):
            for name, (_, on) in settings.items():
                with processors(on):
                    measured[name].add(walls[name], count)
    return measured


def _cpu(keeper: int) -> float:
    """Seconds of processor time of this process and of all below the keeper, those that have ended included."""
    used = time.process_time()
    below = {keeper}
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    while more := {pid for pid, (parent, _) in parents.items() if parent in below} - below:
        below |= more
    return used + sum(parents[pid][1] for pid in below if pid in parents) / os.sysconf("SC_CLK_TCK")
