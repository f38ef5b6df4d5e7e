"""Folders of a run on the host's own file system, for the ways that have no file system of their own.

Invariant: everything lies below one folder that the keeper made and removes.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from agent_envs.code.sandbox.zygote.cage import Bounds, Cage


class FolderCage(Cage):
    """A cage whose runs work in folders below ``base``."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._run = ""

    def enter(self, bounds: Bounds) -> None:
        self._run = tempfile.mkdtemp(dir=self._base)
        self.work, self.temporary = os.path.join(self._run, "work"), os.path.join(self._run, "tmp")
        os.mkdir(self.work)
        os.mkdir(self.temporary)

    def leave(self) -> None:
        remove(self._run)

    @property
    def shown(self) -> str:
        return self.work


def remove(folder: str) -> None:
    """Removes a folder whatever modes its owner gave to what is below; follows nothing."""
    for where, folders, _, _ in os.fwalk(folder, onerror=_ignore):
        for name in folders:
            path = Path(where, name)
            if stat.S_ISDIR(path.lstat().st_mode):
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _ignore(error: OSError) -> None:
    """What cannot be listed is seen when it cannot be removed."""
