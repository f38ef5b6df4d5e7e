"""The cost protocol: what one program costs relative to another that does the same work.

Invariant: programs are timed in turn (A B C A B C ...), and a ratio is the median of the quotients within a round, so
that what slows the machine down for a while slows both sides. On a CPU the time is that of the process, on one thread:
waiting for a shared machine does not count. On CUDA it is the time between two events, after a warm-up.
Memory is the peak above what was resident before, in a process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from runners.command_line.plain import dump_json
from runners.reporting.hardware import processor
from runners.training.report import versions

Program = Callable[[], object]
Name = TypeVar("Name")
MB = 1e6


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of some measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def seconds(program: Program, device: torch.device | str = "cpu") -> float:
    """Process time of one call in seconds; on CUDA the time between two events."""
    if torch.device(device).type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        begin.record()
        program()
        end.record()
        torch.cuda.synchronize(device)
        return begin.elapsed_time(end) / 1000
    start = time.process_time()
    program()
    return time.process_time() - start


def interleaved(
    programs: Mapping[Name, Program], rounds: int, device: torch.device | str = "cpu", warm: int = 1
) -> dict[Name, list[float]]:
    """Seconds of every program in each of ``rounds`` rounds, after ``warm`` untimed ones.

    Every other round goes backwards, so that no program always follows the same one.
    """
    for _ in range(warm):
        for program in programs.values():
            program()
    times: dict[Name, list[float]] = {name: [] for name in programs}
    gc.collect()
    gc.disable()  # a collection would be charged to whichever program it happens in
    try:
        for index in range(rounds):
            order = list(programs)
            for name in order if index % 2 == 0 else reversed(order):
                times[name].append(seconds(programs[name], device))
            gc.collect()
    finally:
        gc.enable()
    return times


def ratio(over: Sequence[float], under: Sequence[float]) -> Spread:
    """``over / under``, round by round."""
    return Spread.of([a / b for a, b in zip(over, under, strict=True)])


# -- memory -----------------------------------------------------------------------------------------------------------


def peak_memory(make: Callable[..., tuple[Program, Program]], *args: Any, device: str = "cpu") -> int | None:
    """Bytes that a program needs at its peak above what was resident before, measured in a fresh process.

    ``make(*args)``, a function of a module's top level, is called in that process and returns (warm-up, program). The
    warm-up is the program on a tiny input: it loads code and kernels, which are not counted. None where the system
    does not tell (anything but Linux or CUDA).
    """
    if torch.device(device).type != "cuda" and not Path("/proc/self/clear_refs").exists():
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (make, args, device))


def _peak(make: Callable[..., tuple[Program, Program]], args: tuple, device: str) -> int:
    one_thread()
    _mallopt(_MMAP_THRESHOLD, 1 << 16)  # freed tensors leave at once: the peak does not depend on the heap's layout
    warm_up, program = make(*args)
    warm_up()
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        program()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # small blocks that the warm-up left behind would be used without being counted
        trim(0)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back to what is resident now
    program()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    """A field of /proc/self/status in bytes."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key + ":"))
    return int(line.split()[1]) * 1024


# -- setting and reporting --------------------------------------------------------------------------------------------


def one_thread() -> None:
    """The cost protocol's one thread."""
    torch.set_num_threads(1)


def keep_memory() -> None:
    """Lets the allocator keep what it once got, where it is glibc's.

    Otherwise it hands pages back to the system after some programs and not after others, by the luck of its layout, and
    asks for them again in the next: up to 5 % of a step, charged to whichever program it happens in.
    """
    _mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    _mallopt(_MMAP_THRESHOLD, 2**30)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def _mallopt(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)


def hardware(device: torch.device | str = "cpu") -> str:
    """What the figures were measured on, in words."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"one thread of {processor()}, {torch.backends.cpu.get_cpu_capability()}"


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]], console: Console) -> None:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*map(shown, row))
    console.print(table)


def shown(value: object) -> str:
    """What a table shows of a value."""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def finish(
    result: Mapping[str, Any],
    conditions: Iterable[tuple[str, bool]],
    out: Path,
    console: Console,
    device: torch.device | str = "cpu",
) -> int:
    """Writes ``result`` with versions and hardware to ``out``, prints what is not met; the program's exit status."""
    judged = list(conditions)
    for line, holds in judged:
        if not holds:
            console.print(f"[bold red]not met:[/] {line}", soft_wrap=True, highlight=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    whole = {
        **result,
        "conditions": [{"condition": line, "holds": holds} for line, holds in judged],
        "hardware": hardware(device),
        "versions": versions(),
    }
    out.write_text(dump_json(whole), "utf-8")
    console.print(f"{sum(holds for _, holds in judged)} of {len(judged)} conditions hold; written to {out}")
    return 0 if judged and all(holds for _, holds in judged) else 1
