"""What every way of caging a run has in common.

Invariant: a cage is used by four processes, each a fork of the one before: the zygote (`start`), a slot (`settle`,
`fork`), the supervisor of a run (`prepare`, `enter`, `end`, `leave`) and what becomes the program (`confine`).
"""

from __future__ import annotations

import os
import resource
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from agent_envs.code.sandbox.zygote import linux


class Refused(Exception):  # noqa: N818
    """This machine does not allow what a cage needs."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


class Bounds(NamedTuple):
    """What a run may take: seconds, bytes and counts."""

    seconds: float
    memory: int
    processes: int
    disk: int
    inodes: int
    output: int
    collected: int
    open_files: int


class Events(NamedTuple):
    """What the system counted against a run: killed for memory, refused processes, largest memory in bytes."""

    oom: int = 0
    refused: int = 0
    peak: int | None = None


class Cage(ABC):
    """One way of caging runs."""

    work = "/work"
    """The program's folder, for the processes of a run."""
    temporary = "/tmp"
    leaves_late = False
    """Whether `leave` may take long: then the result is told before it."""

    @abstractmethod
    def start(self) -> None:
        """In the zygote, once. Raises Refused."""

    def settle(self) -> None:  # noqa: B027
        """In a slot, the process from which runs are forked one after the other, once. Raises OSError."""

    def fork(self) -> int:
        """Forks the supervisor of a run; as `os.fork`."""
        return os.fork()

    def prepare(self) -> None:  # noqa: B027
        """In the supervisor, before it has a run: what does not depend on the run. Raises OSError."""

    @abstractmethod
    def enter(self, bounds: Bounds) -> None:
        """In the supervisor: makes the folders `work` and `temporary`."""

    def crowded(self, bounds: Bounds) -> bool:
        """In the supervisor, while the program runs: whether its files are more than they may be."""
        return False

    def tick(self) -> float:
        """Seconds until `crowded` is to be asked."""
        return 3600.0

    @contextmanager
    def as_owner(self) -> Iterator[None]:
        """In the supervisor: touches files with the program's rights."""
        yield

    @abstractmethod
    def confine(self, bounds: Bounds) -> None:
        """In the process that becomes the program, its working directory being `work`. There is no way back."""

    @abstractmethod
    def end(self, pid: int) -> bool:
        """Kills and reaps whatever is left beside the program ``pid``, reaped already; whether there was anything."""

    def kill(self, pid: int) -> None:
        """Kills the program ``pid``, not yet reaped, and all that it started."""
        os.kill(pid, 9)

    def leave(self) -> None:  # noqa: B027 (most have nothing to do)
        """In the supervisor, after everything: removes what `enter` made and the kernel does not."""

    def events(self) -> Events:
        """What the system counted, before `leave`."""
        return Events()

    def counted(self) -> Events:
        """What the system counted since the cage was made."""
        return Events()

    @property
    def shown(self) -> str:
        """How `work` reads in what a run prints; the same for all cages."""
        return "/work"


def set_limits(bounds: Bounds, *, processes: bool) -> None:
    """Resource limits of this process and all it starts; they can be lowered only."""
    seconds = int(bounds.seconds) + 2
    limits = [
        (resource.RLIMIT_AS, bounds.memory),
        (resource.RLIMIT_FSIZE, bounds.disk),
        (resource.RLIMIT_NOFILE, bounds.open_files),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 256),
        (resource.RLIMIT_STACK, min(8 << 20, bounds.memory)),
    ]
    if processes:
        limits.append((resource.RLIMIT_NPROC, bounds.processes))
    for which, most in limits:
        hard = resource.getrlimit(which)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (value, value))


def reap_all() -> bool:
    """Waits for all children; whether there were any."""
    any_there = False
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return any_there
        any_there = True


def kill_everybody() -> bool:
    """Kills every process this one can see and may signal, but itself and the first one; whether there was any."""
    found = False
    while True:
        try:
            os.kill(-1, 9)
        except ProcessLookupError:
            return reap_all() or found
        found = True
        reap_all()


def lock_down(program: bytes, *, bounding: bool = False) -> None:
    """No capabilities, no way to new privileges, and the filter of system calls ``program``."""
    linux.drop_capabilities(bounding=bounding)
    linux.no_new_privileges()
    linux.install_filter(program)
