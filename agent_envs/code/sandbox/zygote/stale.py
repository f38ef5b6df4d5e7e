"""Folders that a sandbox left behind when it was killed as a whole, its keeper included.

Invariant: a folder is held, by a lock that ends with the last process of its sandbox, as long as it is used; what is
held, young or another user's is left alone. The lock holds across containers that share the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable

FOLDER = "turnwise-sandbox-held-"
"""How the names of folders for temporary files begin."""
_YOUNG = 60.0
"""Seconds in which a folder may be made and not held yet."""


def hold(fd: int) -> None:
    """Holds the folder behind ``fd`` until the last process that has ``fd`` ends."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sweep(parent: str, prefix: str, remove: Callable[[str], None]) -> None:
    """Removes the folders of ``parent`` that begin with ``prefix`` and that nobody holds."""
    try:
        names = [name for name in os.listdir(parent) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # held, gone, or another user's
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(fd)
                if os.geteuid() in (0, status.st_uid) and time.time() - status.st_ctime > _YOUNG:
                    hold(fd)
                    remove(path)
            finally:
                os.close(fd)
