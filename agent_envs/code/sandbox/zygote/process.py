"""No cage: limits for accidents, and a folder to work in.

Invariant: it keeps nothing from a program that means harm, and is never chosen but by its name.
"""

from __future__ import annotations

import contextlib
import os

from agent_envs.code.sandbox.zygote.cage import Bounds, set_limits
from agent_envs.code.sandbox.zygote.own import FolderCage


class ProcessCage(FolderCage):
    """A process like any other of this user."""

    def start(self) -> None:
        pass

    def confine(self, bounds: Bounds) -> None:
        set_limits(bounds, processes=False)

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, 9)
        super().kill(pid)

    def end(self, pid: int) -> bool:
        try:
            os.killpg(pid, 9)
        except ProcessLookupError:
            return False
        return True
