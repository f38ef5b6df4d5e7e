"""What a run in the sandbox costs, beside bubblewrap, a plain process and a container.

    python benchmarks/sandbox.py --out benchmarks/results/sandbox.json

Invariant: all of them run ``print(1)`` in Python without its site packages, one after the other in each round, so
that what else the machine does slows all alike; what came back is looked at. Times are wall times: what a run waits for
(the kernel, an engine) is part of its cost. What is not installed here is left out and named.
Exits with 1 when a condition fails. On a machine with other work: ``chrt --rr 1 python benchmarks/sandbox.py``, which
goes before it; the engine of docker does not.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console

from agent_envs.code.sandbox import Job, Limits, Sandbox, SandboxUnavailable, Status
from agent_envs.code.sandbox.choose import open_sandbox
from agent_envs.code.sandbox.warm import WarmSandbox
from benchmarks.timing import Spread, finish, print_table, ratio

MOST_MS, DOCKER_MOST_MS, LATE_MOST_MS = 8.0, 120.0, 250.0
LEAST_RATE, LEAST_GAIN, MOST_DEARER = 100.0, 1.6, 1.1
TURNS = 5
"""How often one worker and two are measured, in turn."""
PROGRAM = "print(1)"
ARGV = ("python", "-c", PROGRAM)
WALLS = ("namespace", "landlock", "unsafe-process", "docker")
FRESH = (os.path.realpath(sys.executable), "-S", "-c", PROGRAM)
LATE = {
    "work": "while True: pass",
    "sleep": "import time; time.sleep(60)",
    "children": "import os, time\nfor _ in range(5): os.fork() or time.sleep(60)\ntime.sleep(60)",
}


@dataclass(frozen=True)
class SandboxCost:
    """Measure what a run in the sandbox costs."""

    rounds: int = 60
    """How often every program runs once."""
    runs: int = 300
    """Runs of a measurement of throughput."""
    quick: bool = False
    """A few runs: shows that the program runs, and nothing else."""
    out: Path = Path("benchmarks/results/sandbox.json")
    """File for the result."""


def bubblewrap() -> list[str]:
    """The usual command: everything unshared, the system's programs read-only."""
    folders = [folder for folder in ("/usr", "/lib", "/lib64", "/bin") if os.path.isdir(folder)]
    shown = [word for folder in (*folders, sys.base_prefix) for word in ("--ro-bind", folder, folder)]
    return [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        *shown,
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ]


def process(command: Sequence[str]) -> Callable[[], bytes]:
    return lambda: subprocess.run(command, capture_output=True, check=True).stdout


def milliseconds(program: Callable[[], bytes]) -> float:
    started = time.perf_counter()
    answer = program()
    taken = time.perf_counter() - started
    assert answer == b"1\n", answer
    return 1000 * taken


def latencies(programs: dict[str, Callable[[], bytes]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every program in each round; every other round goes backwards."""
    for program in programs.values():
        milliseconds(program)
    times: dict[str, list[float]] = {name: [] for name in programs}
    for index in range(rounds):
        for name in list(programs) if index % 2 == 0 else list(reversed(programs)):
            times[name].append(milliseconds(programs[name]))
    return times


@dataclass(frozen=True)
class Throughput:
    """Many runs, as many at a time as a sandbox has workers."""

    per_second: float
    cpu_ms: float
    """Processor time of a run in ms, of everybody: supervisors, programs, those who fork them, and this process."""
    busy: float
    """Processors that they kept busy."""


def throughput(sandbox: WarmSandbox, count: int) -> Throughput:
    before, started = _cpu(sandbox.pid), time.perf_counter()
    results = sandbox.run_many([Job(ARGV)] * count)
    taken = time.perf_counter() - started
    used = _cpu(sandbox.pid) - before
    assert all(result.stdout == b"1\n" for result in results)
    return Throughput(count / taken, 1000 * used / count, used / taken)


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


def killed_after(sandbox: Sandbox, program: str, count: int, seconds: float = 0.2) -> list[float]:
    """Milliseconds from the deadline until the caller has the result, the start of the run included."""
    late = []
    for _ in range(count):
        started = time.perf_counter()
        result = sandbox.run(["python", "-c", program], limits=Limits(seconds=seconds))
        late.append(1000 * (time.perf_counter() - started - seconds))
        assert result.status is Status.TIMEOUT
    return late


def growth(sandbox: Sandbox, output_kb: int) -> float | None:
    """KiB by which this process grows at most while a program prints without end."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    flood = ["python", "-c", "while True: print('x' * 10000)"]
    sandbox.run(flood, limits=Limits(output_kb=output_kb))
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    result = sandbox.run(flood, limits=Limits(output_kb=output_kb))
    assert result.status is Status.OUTPUT_LIMIT and len(result.stdout) == output_kb * 1024
    return max(0.0, _status("VmHWM") - before)


def _status(key: str) -> float:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key + ":"))
    return float(line.split()[1])


def machine() -> dict[str, Any]:
    """How many processors there are, what else they do, and whether this program goes before it."""
    first = hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return {"processors": os.cpu_count(), "load": os.getloadavg()[0], "before_other_programs": first}


def main(settings: SandboxCost) -> int:
    """The program's exit status."""
    rounds, runs = (3, 10) if settings.quick else (settings.rounds, settings.runs)
    console = Console()
    missing: dict[str, str] = {}
    result: dict[str, Any] = {"missing": missing, "machine": machine()}
    with ExitStack() as stack:
        walls: dict[str, Sandbox] = {}
        for name in WALLS:
            try:
                walls[name] = stack.enter_context(open_sandbox(name, workers=1))
            except SandboxUnavailable as error:
                missing[name] = error.reason
        programs: dict[str, Callable[[], bytes]] = {"plain process": process(FRESH)}
        programs |= {name: lambda wall=wall: wall.run(ARGV).stdout for name, wall in walls.items()}  # type: ignore[misc]
        if shutil.which("bwrap"):
            programs["bubblewrap"] = process([*bubblewrap(), *FRESH])
        else:
            missing["bubblewrap"] = "not installed"
        times = latencies(programs, rounds)
        result["milliseconds"] = {name: asdict(Spread.of(values)) for name, values in times.items()}
        result["to_plain_process"] = {
            name: asdict(ratio(values, times["plain process"])) for name, values in times.items()
        }
        print_table(
            f"print(1), {rounds} rounds",
            ["", "median ms", "least", "most", "to a plain process"],
            [
                [name, spread.median, spread.low, spread.high, ratio(times[name], times["plain process"]).median]
                for name, spread in ((name, Spread.of(values)) for name, values in times.items())
            ],
            console,
        )
        namespace = walls["namespace"]
        count = 2 if settings.quick else 10
        late = {name: killed_after(namespace, program, count) for name, program in LATE.items()}
        result["late_ms"] = {name: asdict(Spread.of(values)) for name, values in late.items()}
        result["growth_kb"] = {str(cap): growth(namespace, cap) for cap in (64, 4096)}
        pair = stack.enter_context(open_sandbox("namespace", workers=2))
        assert isinstance(namespace, WarmSandbox) and isinstance(pair, WarmSandbox)
        singles, pairs = zip(
            *[(throughput(namespace, runs), throughput(pair, runs)) for _ in range(TURNS)], strict=True
        )
    one, two = (statistics.median(each.per_second for each in many) for many in (singles, pairs))
    gain = ratio([each.per_second for each in pairs], [each.per_second for each in singles])
    dearer = ratio([each.cpu_ms for each in pairs], [each.cpu_ms for each in singles])
    result["throughput"] = {
        "one worker": [asdict(each) for each in singles],
        "two workers": [asdict(each) for each in pairs],
        "gain": asdict(gain),
        "cpu_of_a_run": asdict(dearer),
    }
    latest = max(spread["high"] for spread in result["late_ms"].values())
    console.print(f"runs a second: {one:.0f} with one worker, {two:.0f} with two ({gain} x)")
    for name, many in (("one worker", singles), ("two workers", pairs)):
        busy, cpu = (Spread.of([getattr(each, field) for each in many]) for field in ("busy", "cpu_ms"))
        console.print(f"{name}: {busy} processors busy, {cpu} ms of processor time a run")
    console.print(f"latest end after a deadline: {latest:.0f} ms; growth of this process (KiB): {result['growth_kb']}")
    for name, reason in missing.items():
        console.print(f"left out: {name}: {reason}", soft_wrap=True)
    conditions = [
        (f"namespace: at most {MOST_MS:.0f} ms (median)", result["milliseconds"]["namespace"]["median"] <= MOST_MS),
        (f"namespace: at least {LEAST_RATE:.0f} runs a second with one worker", one >= LEAST_RATE),
        (f"namespace: at least {LEAST_GAIN} times as many with two", gain.median >= LEAST_GAIN),
        (
            f"namespace: a run takes at most {MOST_DEARER} times the processor time beside another",
            dearer.median <= MOST_DEARER,
        ),
        (f"namespace: killed within {LATE_MOST_MS:.0f} ms of the deadline", latest <= LATE_MOST_MS),
        *(
            (f"this process grows by no more than {cap} KiB and an allowance of 512", (grown or 0) <= int(cap) + 512)
            for cap, grown in result["growth_kb"].items()
        ),
    ]
    if "docker" in walls:
        median = result["milliseconds"]["docker"]["median"]
        conditions.append((f"docker: at most {DOCKER_MOST_MS:.0f} ms (median)", median <= DOCKER_MOST_MS))
    return finish(result, conditions, settings.out, console)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(SandboxCost)))
