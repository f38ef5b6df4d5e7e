"""``python ray_guard.py FOLDER``: clears up after a Ray cluster of this machine, however the run that started it ended.

It waits until its standard input closes, which it does when the run's process ends, ``kill -9`` included. Then it kills
every process of the cluster but that of the run, and removes the folder. It imports nothing of ours, so that it starts
at once, in Python's isolated mode.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "TURNWISE_RAY"
"""Environment variable that holds the folder in the processes of a cluster."""
_PATIENCE = 20.0
"""Seconds after which processes that cannot be killed are left to the system."""


def marked(folder: str) -> list[int]:
    """Processes of the cluster with this folder; none where the system has no /proc."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _is_marked(entry, folder)]


def _is_marked(process: Path, folder: str) -> bool:
    """Whether its environment names the folder; some of Ray's overwrite theirs, but all have a file open there."""
    with suppress(OSError):
        if f"{MARK}={folder}\0".encode() in (process / "environ").read_bytes():
            return True
        return any(os.readlink(file).startswith(f"{folder}/") for file in (process / "fd").iterdir())
    return False


def clear(folder: str, spared: int) -> None:
    until = time.monotonic() + _PATIENCE
    while (left := set(marked(folder)) - {spared}) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run = os.getppid()  # it may still have Ray's log open
    sys.stdin.buffer.read()
    clear(sys.argv[1], run)
