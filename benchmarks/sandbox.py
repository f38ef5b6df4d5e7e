"""The cost of a run in the sandbox, against bubblewrap, a plain process and a container.

    python benchmarks/sandbox.py --out benchmarks/results/sandbox.json

Invariant: all of them run ``print(1)`` in Python without its site packages, one after the other in each round, so
that what else the machine does slows all alike; what came back is looked at. Times are wall times: what a run waits for
(the kernel, an engine) is part of its cost. What is not installed here is left out and named.
Exits with 1 when a condition fails. On a machine with other work: ``chrt --rr 1 python benchmarks/sandbox.py``, which
goes before it; the engine of docker does not.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console

from agent_envs.code.sandbox import Limits, Sandbox, SandboxUnavailable, Status
from agent_envs.code.sandbox.choose import open_sandbox
from benchmarks.sandbox_rates import ARGV, FIELDS, ONE, PINNED, TURNS, TWO, throughputs
from benchmarks.timing import Spread, finish, print_table, ratio

MOST_MS, DOCKER_MOST_MS, LATE_MOST_MS = 8.0, 120.0, 250.0
LEAST_RATE, LEAST_GAIN, MOST_DEARER = 100.0, 1.6, 1.1
WALLS = ("namespace", "landlock", "unsafe-process", "docker")
FRESH = (os.path.realpath(sys.executable), "-S", *ARGV[1:])
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
    rates = throughputs(runs)
    spreads = {name: {field: rate.spread(field) for field in FIELDS} for name, rate in rates.items()}
    gains = {name: rates[TWO].against(rates[name], "per_second") for name in (ONE, PINNED)}
    dearer = rates[TWO].against(rates[ONE], "cpu_ms")
    result["throughput"] = {name: {key: asdict(value) for key, value in of.items()} for name, of in spreads.items()}
    result["gain_of_two_workers"] = {f"over {name}": asdict(value) for name, value in gains.items()}
    result["cpu_of_a_run_beside_another"] = asdict(dearer)
    latest = max(spread["high"] for spread in result["late_ms"].values())
    print_table(
        f"{runs} runs, {TURNS} times",
        ["", "runs/s", "processor ms a run", "processors busy", "two against it"],
        [[name, of["per_second"], of["cpu_ms"], of["busy"], gains.get(name, "")] for name, of in spreads.items()],
        console,
    )
    console.print(f"latest end after a deadline: {latest:.0f} ms; growth of this process (KiB): {result['growth_kb']}")
    for name, reason in missing.items():
        console.print(f"left out: {name}: {reason}", soft_wrap=True)
    conditions = [
        (f"namespace: at most {MOST_MS:.0f} ms (median)", result["milliseconds"]["namespace"]["median"] <= MOST_MS),
        (
            f"namespace: at least {LEAST_RATE:.0f} runs a second with one worker",
            spreads[ONE]["per_second"].median >= LEAST_RATE,
        ),
        (f"namespace: at least {LEAST_GAIN} times as many with two", gains[ONE].median >= LEAST_GAIN),
        (f"namespace: {LEAST_GAIN} times as many as one on one processor", gains[PINNED].median >= LEAST_GAIN),
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
