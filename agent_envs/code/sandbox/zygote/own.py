"""Folders of a run on the host's own file system, for the ways that have no file system of their own.

Invariant: everything lies below one folder that the keeper made and removes.
"""

from __future__ import annotations

import os

from agent_envs.code.sandbox.zygote.cage import Bounds, Cage
from agent_envs.code.sandbox.zygote.files import remove


class FolderCage(Cage):
    """A cage whose runs work in folders below ``base``."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._run = ""

    def enter(self, bounds: Bounds) -> None:
        self._run = os.path.join(self._base, os.urandom(8).hex())
        os.mkdir(self._run, 0o700)
        self.work, self.temporary = os.path.join(self._run, "work"), os.path.join(self._run, "tmp")
        os.mkdir(self.work)
        os.mkdir(self.temporary)

    def leave(self) -> None:
        remove(self._run)

    @property
    def shown(self) -> str:
        return self.work
