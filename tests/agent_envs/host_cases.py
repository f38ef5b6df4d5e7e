"""What the tests of environments in processes share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie (who reaps an orphan is the system's affair)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(pids: Iterable[int], seconds: float) -> bool:
    """Whether all of them end in that time."""
    pids, deadline = list(pids), time.monotonic() + seconds
    while any(map(running, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def wait_for(file: Path, seconds: float = 20.0) -> str:
    deadline = time.monotonic() + seconds
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.02)
    return file.read_text()
