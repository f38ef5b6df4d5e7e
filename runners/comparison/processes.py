"""Jobs that run in processes of their own, several at once.

Invariant: a process that was started here is over when ``carry_out`` returns or raises; one that is stopped is asked
to, so that it saves what it has.
"""

import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
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


def carry_out(jobs: Sequence[ProcessJob], at_once: int, title: str, console: Console) -> dict[str, str]:
    """Does the jobs; returns why, by name, for those that failed. Raises UserError when it is asked to stop."""
    waiting, failed = list(jobs), dict[str, str]()
    active: dict[TaskID, tuple[ProcessJob, Generator[None]]] = {}
    alive: set[subprocess.Popen[bytes]] = set()
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
                    active[progress.add_task(job.name, total=1.0)] = job, _doing(job, alive)
                    if not console.is_terminal:
                        console.print(f"{title}: {job.name} ({len(jobs) - len(waiting)} of {len(jobs)})")
                going = len(active)
                for bar, (job, doing) in list(active.items()):
                    try:
                        next(doing)
                        progress.update(bar, completed=job.share())
                        continue
                    except StopIteration:
                        pass
                    except UserError as error:
                        failed[job.name] = str(error)
                        told = escape(f"{job.name}: {error}")
                        console.print(f"[bold red]failed:[/] {told}", highlight=False, soft_wrap=True)
                    del active[bar]
                    progress.remove_task(bar)
                over = len(jobs) - len(waiting) - len(active)
                progress.update(whole, completed=over + sum(job.share() for job, _ in active.values()))
                if len(active) == going:  # where a job has ended, as those do that are done already, the next begins
                    time.sleep(LOOK)
        except Stopped as stop:
            raise UserError(f"stopped by {stop}: the same command goes on from here") from None
        finally:
            # All are asked before one is waited for: a second signal ends this process at once.
            for process in alive:
                process.terminate()
            for _, doing in active.values():
                doing.close()
    return failed


def _doing(job: ProcessJob, alive: set[subprocess.Popen[bytes]]) -> Generator[None]:
    """Runs the job's programs, and yields while one runs; closed, it ends that one. Raises UserError when one fails.

    The program that runs is among those that are ``alive``.
    """
    job.log.parent.mkdir(parents=True, exist_ok=True)
    for command in job.steps():
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        alive.add(process)
        try:
            while (status := process.poll()) is None:
                yield
        finally:
            _end(process)
            alive.remove(process)
        if status:
            lines = [line for line in job.log.read_text("utf-8", "replace").splitlines() if line.strip()]
            why = lines[-1].removeprefix("error: ") if lines else f"exit status {status}"
            raise UserError(f"{why} (see {job.log})")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
