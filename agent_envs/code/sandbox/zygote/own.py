"""Folders of a run on the host's own file system, for the ways that have no file system of their own.

Invariants:

- Everything lies below one folder that the keeper made and removes.
- A run whose files are too many or too large is ended soon: nothing on the host's file system refuses them, and a disk
  may take much longer to remove them than a program to make them.
"""

from __future__ import annotations

import os
import time

from agent_envs.code.sandbox.zygote.cage import Bounds, Cage
from agent_envs.code.sandbox.zygote.files import OPEN_FOLDER, remove

_DEEP = 100
_FOLDERS = 16
"""A sixteenth of the files may be folders, or this many times eight: some disks take milliseconds to remove one."""
_EVERY = 0.03
"""Seconds between two looks at the files of a run that goes on, and a tenth of the time that they take."""


class _Full(Exception):  # noqa: N818
    """There is more than there may be."""


class FolderCage(Cage):
    """A cage whose runs work in folders below ``base``."""

    leaves_late = True

    def __init__(self, base: str) -> None:
        self._base = base
        self._run = ""
        self._next = 0.0

    def enter(self, bounds: Bounds) -> None:
        self._run = os.path.join(self._base, os.urandom(8).hex())
        os.mkdir(self._run, 0o700)
        self.work, self.temporary = os.path.join(self._run, "work"), os.path.join(self._run, "tmp")
        os.mkdir(self.work)
        os.mkdir(self.temporary)
        self._next = time.monotonic() + _EVERY

    def crowded(self, bounds: Bounds) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        left = [bounds.inodes + 8, 2 * bounds.disk, max(8 * _FOLDERS, bounds.inodes // _FOLDERS)]
        try:
            for folder in (self.work, self.temporary):
                _weigh(os.open(folder, OPEN_FOLDER), left, _DEEP)
        except _Full:
            return True
        finally:
            after = time.monotonic()
            self._next = after + max(_EVERY, 10 * (after - now))
        return False

    def tick(self) -> float:
        return max(0.001, self._next - time.monotonic())

    def leave(self) -> None:
        remove(self._run)

    @property
    def shown(self) -> str:
        return self.work


def _weigh(folder: int, left: list[int], depth: int) -> None:
    """Takes the files below ``folder``, which it closes, from ``left``: [number, bytes, folders]. Raises _Full."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                left[0] -= 1
                try:
                    if entry.is_dir(follow_symlinks=False):
                        left[2] -= 1
                        if min(*left, depth) <= 0:  # before going down: the program may be making folders just there
                            raise _Full
                        _weigh(_opened(entry.name, folder), left, depth - 1)
                    else:
                        left[1] -= entry.stat(follow_symlinks=False).st_blocks * 512
                except FileNotFoundError:  # gone meanwhile
                    continue
                if min(left) < 0:
                    raise _Full
    finally:
        os.close(folder)


def _opened(name: str, folder: int) -> int:
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=folder)
    except PermissionError:  # made so that it can be written, but not read
        os.chmod(name, 0o700, dir_fd=folder)
        return os.open(name, OPEN_FOLDER, dir_fd=folder)
