"""Jobs in processes of their own: some at once, none left behind, and what failed is told."""

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from runners.command_line.errors import UserError
from runners.comparison.processes import ProcessJob, carry_out

SILENT = Console(file=io.StringIO())


def job(folder: Path, name: str, *programs: str) -> ProcessJob:
    def steps() -> Iterator[Sequence[str]]:
        for program in programs:
            yield [sys.executable, "-c", program]

    return ProcessJob(name, folder / f"{name}.log", steps)


def span(folder: Path, name: str, beside: str = "") -> str:
    """A program that writes when it began and when it ended; it waits until another one has begun."""
    file, other = folder / f"{name}.span", folder / f"{beside}.begun"
    return f"""
import pathlib, time
a = time.time()
pathlib.Path({str(folder / name)!r} + ".begun").touch()
while {bool(beside)} and not pathlib.Path({str(other)!r}).exists():
    time.sleep(0.01)
pathlib.Path({str(file)!r}).write_text(f"{{a}} {{time.time()}}")
"""


def test_as_many_run_at_once_as_were_asked_for(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    # The first two wait for each other: they would never end one after the other.
    waits = {"a": "b", "b": "a", "c": ""}
    assert carry_out([job(tmp_path, n, span(tmp_path, n, waits[n])) for n in names], 2, "jobs", SILENT) == {}
    spans = [tuple(map(float, (tmp_path / f"{n}.span").read_text().split())) for n in names]
    assert max(sum(a <= t < b for a, b in spans) for t, _ in spans) == 2
    assert carry_out([job(tmp_path, n, span(tmp_path, n)) for n in names[:2]], 1, "jobs", SILENT) == {}
    (_, end), (begin, _) = (map(float, (tmp_path / f"{n}.span").read_text().split()) for n in names[:2])
    assert begin >= end


def test_a_failure_ends_its_own_job_only_and_is_told(tmp_path: Path) -> None:
    wrong = "import sys; print('error: no such thing', file=sys.stderr); sys.exit(2)"
    after = f"open({str(tmp_path / 'after')!r}, 'w')"
    failed = carry_out([job(tmp_path, "bad", wrong, after), job(tmp_path, "good", after)], 1, "jobs", SILENT)
    assert failed == {"bad": f"no such thing (see {tmp_path / 'bad.log'})"}
    (tmp_path / "after").unlink()
    assert list(carry_out([job(tmp_path, "bad", wrong, after)], 1, "jobs", SILENT)) == ["bad"]
    assert not (tmp_path / "after").exists(), "what comes after a failure is not done"


def test_a_job_that_is_refused_while_it_is_planned_fails_alone(tmp_path: Path) -> None:
    def steps() -> Iterator[Sequence[str]]:
        raise UserError("other settings")
        yield []

    assert carry_out([ProcessJob("x", tmp_path / "x.log", steps)], 1, "jobs", SILENT) == {"x": "other settings"}


def test_told_to_stop_it_stops_what_it_started(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, time\n"
        f"def stop(*_): open({str(tmp_path / 'saved')!r}, 'w'); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )

    def stop() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    started = time.monotonic()
    with pytest.raises(UserError, match="stopped by SIGTERM: the same command goes on from here"):
        carry_out([job(tmp_path, "long", program)], 1, "jobs", SILENT)
    assert (tmp_path / "saved").exists(), "it was asked, not killed"
    assert time.monotonic() - started < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
