"""Turns at a live wiki: a number of requests at a time over all processes of this machine, with a pause before each.

Invariant: a turn ends with its process, because the system frees the locks; waiting for one ends by the deadline.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_envs.core import BackendUnavailable

_LOOK = 0.005


@contextmanager
def turn(lock: Path, spacing: float, deadline: float) -> Iterator[None]:
    """Holds `lock`; its time of change says when the last request ended. Raises BackendUnavailable."""
    with lock.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BackendUnavailable(
                        "the live wiki was busy with other requests for too long: "
                        "raise --wiki.patience or --wiki.in-flight, or run fewer episodes at once"
                    ) from None
                time.sleep(_LOOK)
        if handle.tell():  # empty: nobody has asked yet
            since = time.time() - os.fstat(handle.fileno()).st_mtime
            time.sleep(min(max(spacing - since, 0.0), spacing))
        else:
            handle.write("used\n")
            handle.flush()
        try:
            yield
        finally:
            os.utime(handle.fileno())
