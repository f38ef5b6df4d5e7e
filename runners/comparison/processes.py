"""Jobs that run in processes of their own, several at once.

Invariant: a process that was started here is over when ``carry_out`` returns or raises; one that is stopped is asked
to, so that it saves what it has.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from runners.command_line.errors import UserError
from runners.training.interrupts import Interrupts, Stopped

LOOK = 0.2
"""Seconds between looks at the processes."""


@dataclass(frozen=True)
class ProcessJob:
    """Something to be done by one program after another."""

    name: str
    log: Path
    """What the programs say goes here."""
    steps: Callable[[], Iterator[Sequence[str]]]
    """The programs that are still to be run, each asked for when the one before has ended well."""
    share: Callable[[], float] = lambda: 0.0
    """How much of the job is done, 0 to 1."""


@dataclass
class _Active:
    job: ProcessJob
    steps: Iterator[Sequence[str]]
    bar: TaskID
    process: subprocess.Popen[bytes] | None = field(default=None)


def carry_out(jobs: Sequence[ProcessJob], at_once: int, title: str, console: Console) -> dict[str, str]:
    """Does the jobs; returns why, by name, for those that failed. Raises UserError when it is told to stop."""
    waiting, active, failed = list(jobs), list[_Active](), dict[str, str]()
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip
    with Interrupts(), progress:
        whole = progress.add_task(f"[bold]{title}[/]", total=len(jobs))
        try:
            while waiting or active:
                while waiting and len(active) < at_once:
                    job = waiting.pop(0)
                    active.append(_Active(job, job.steps(), progress.add_task(job.name, total=1.0)))
                    if not console.is_terminal:
                        console.print(f"{title}: {job.name} ({len(jobs) - len(waiting)} of {len(jobs)})")
                for one in list(active):
                    why = _advance(one)
                    if why is None:
                        progress.update(one.bar, completed=one.job.share())
                        continue
                    active.remove(one)
                    progress.remove_task(one.bar)
                    if why:
                        failed[one.job.name] = why
                        console.print(f"[bold red]failed:[/] {one.job.name}: {why}", highlight=False, soft_wrap=True)
                over = len(jobs) - len(waiting) - len(active)
                progress.update(whole, completed=over + sum(one.job.share() for one in active))
                time.sleep(LOOK)
        except Stopped as stop:
            raise UserError(f"stopped by {stop}: the same command goes on from here") from None
        finally:
            for one in active:
                _end(one.process)
    return failed


def _advance(one: _Active) -> str | None:
    """Starts the next program if none runs; None while there is something to do, else what went wrong or ""."""
    if one.process is not None:
        status = one.process.poll()
        if status is None:
            return None
        one.process = None
        if status:
            return f"{_last_line(one.job.log) or f'exit status {status}'} (see {one.job.log})"
    try:
        command = next(one.steps, None)
    except UserError as error:
        return str(error)
    if command is None:
        return ""
    one.job.log.parent.mkdir(parents=True, exist_ok=True)
    with one.job.log.open("ab") as log:
        one.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    return None


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()] if log.exists() else []
    return lines[-1].removeprefix("error: ") if lines else ""
