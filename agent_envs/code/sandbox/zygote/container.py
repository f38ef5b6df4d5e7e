"""A cage inside a container: the engine keeps files, network, memory and processes; the program is another user.

Invariant: the supervisor is the container's root with three capabilities (set user, set group, kill); the program is
another user, has none, and cannot touch the supervisor. One run at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agent_envs.code.sandbox.zygote import linux, loop, seccomp, wire
from agent_envs.code.sandbox.zygote.cage import Bounds, Cage, Events, kill_everybody, lock_down, set_limits
from agent_envs.code.sandbox.zygote.files import remove
from agent_envs.code.sandbox.zygote.group import counted, prefer_for_killing

_CGROUP = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup")  # of version 1, and of version 2
_FOLDERS = ("/work", "/tmp", "/dev/shm")


class ContainerCage(Cage):
    """The inside of the docker backend."""

    def __init__(self, user: int) -> None:
        self._user = user
        self._filter = seccomp.program(os.uname().machine)
        self._before = Events()

    def start(self) -> None:
        linux.set_dumpable(False)

    def prepare(self) -> None:
        linux.adopt_orphans()

    def enter(self, bounds: Bounds) -> None:
        self._before = self.counted()

    @contextmanager
    def as_owner(self) -> Iterator[None]:
        os.setegid(self._user)
        os.seteuid(self._user)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)

    def confine(self, bounds: Bounds) -> None:
        prefer_for_killing()
        set_limits(bounds, processes=True)
        os.setgroups([])
        os.setresgid(self._user, self._user, self._user)
        os.setresuid(self._user, self._user, self._user)
        linux.set_dumpable(True)
        lock_down(self._filter)

    def kill(self, pid: int) -> None:
        os.kill(-1, 9)

    def end(self, pid: int) -> bool:
        return kill_everybody()

    def events(self) -> Events:
        now = self.counted()
        return Events(now.oom - self._before.oom, now.refused - self._before.refused)

    def counted(self) -> Events:
        return counted(partial(_text, folder) for folder in _CGROUP)

    def leave(self) -> None:
        with self.as_owner():
            for folder in _FOLDERS:
                for name in os.listdir(folder):
                    remove(os.path.join(folder, name))


def _text(folder: str, file: str) -> str:
    return Path(folder, file).read_text()


def main(config: Mapping[str, Any]) -> None:
    """The first process of a container: one run after the other over its standard streams; never returns."""
    cage = ContainerCage(config["user"])
    loop.warm()
    cage.start()
    wire.write(1, wire.pack({"ready": True}))
    loop.serve_stream(cage, 0, 1)
