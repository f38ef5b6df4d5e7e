"""The control groups of one run: its limits, and what the kernel counted against it.

Invariant: they are made before the program starts and removed after its last process is dead. The supervisor is not in
them: it lives on when the program's memory is spent.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from agent_envs.code.sandbox.zygote.cage import Bounds, Events


@dataclass(frozen=True)
class Tree:
    """A folder of ours in a tree of control groups, behind a descriptor: its path may be out of sight."""

    version: int
    fd: int
    path: str


@dataclass
class Group:
    """The groups of a run, one in each tree."""

    trees: list[Tree]
    name: str = ""

    def make(self, bounds: Bounds) -> None:
        """Makes them, with their limits."""
        self.name = secrets.token_hex(6)
        for tree in self.trees:
            os.mkdir(self.name, dir_fd=tree.fd)
            for file, value in _limits(tree.version, bounds):
                with contextlib.suppress(FileNotFoundError):  # another controller's tree, or no accounting of swap
                    put(tree.fd, f"{self.name}/{file}", value)

    def join(self) -> None:
        """Moves this process into them."""
        for tree in self.trees:
            put(tree.fd, f"{self.name}/cgroup.procs", "0")

    def events(self) -> Events:
        """What they counted."""
        return counted(partial(_get, tree.fd, self.name) for tree in self.trees)

    def remove(self) -> None:
        """Removes them."""
        for tree in self.trees:
            settled(partial(os.rmdir, self.name, dir_fd=tree.fd))


def _limits(version: int, bounds: Bounds) -> list[tuple[str, str]]:
    memory, processes = str(bounds.memory), str(bounds.processes)
    if version == 1:
        files = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        return [*((file, memory) for file in files), ("pids.max", processes)]
    return [("memory.max", memory), ("memory.swap.max", "0"), ("pids.max", processes)]


def counted(readers: Iterable[Callable[[str], str]]) -> Events:
    """What control groups counted; a reader gives the text of a file of its group, or raises OSError."""
    oom = refused = 0
    peak: int | None = None
    for reader in readers:
        for file, counts in (("memory.oom_control", "oom_kill"), ("memory.events", "oom_kill"), ("pids.events", "max")):
            for line in _lines(reader, file):
                name, _, value = line.partition(" ")
                if name == counts and file == "pids.events":
                    refused += int(value)
                elif name == counts:
                    oom += int(value)
        for file in ("memory.max_usage_in_bytes", "memory.peak"):
            for line in _lines(reader, file):
                peak = int(line)
    return Events(oom, refused, peak)


def _lines(reader: Callable[[str], str], file: str) -> list[str]:
    try:
        return reader(file).splitlines()
    except OSError:
        return []


def settled(action: Callable[[], None], seconds: float = 1.0) -> None:
    """Removes a group; the kernel needs a moment to see that its last process is dead."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except FileNotFoundError:
            return None
        except OSError:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)


def put(folder: int, file: str, value: str) -> None:
    """Writes into a file of a group."""
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _get(folder: int, group: str, file: str) -> str:
    fd = os.open(f"{group}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, 4096).decode()
    finally:
        os.close(fd)
