"""The control groups of a slot: the limits of the run that it holds, and what the kernel counted against it.

Invariant: a run's processes are born in its slot's group. The supervisor and the slot itself are in it too; they are
small, count against the limit, and are not the ones to go when it is reached.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from agent_envs.code.sandbox.zygote.cage import Bounds, Events

_OWN = 6
"""Processes of a group that are not the program's: slot, supervisor, the next one, and three that are ending."""


class Tree(NamedTuple):
    """A folder of ours in a tree of control groups, behind a descriptor: its path may be out of sight."""

    version: int
    fd: int
    path: str


class Group:
    """The groups of a slot, one in each tree: made once, and given new limits for every run."""

    def __init__(self, trees: list[Tree]) -> None:
        self._trees = trees
        self._name = os.urandom(6).hex()
        self._before = Events()

    def make(self) -> None:
        """Makes them and moves this process into them. Raises OSError."""
        for tree in self._trees:
            os.mkdir(self._name, dir_fd=tree.fd)
            put(tree.fd, f"{self._name}/cgroup.procs", "0")

    def limit(self, bounds: Bounds) -> None:
        """Sets the limits of the run that begins. Raises OSError."""
        memory, processes = str(bounds.memory), str(bounds.processes + _OWN)
        for tree in self._trees:
            if tree.version == 1:
                # The second of these may not be below the first: it is set before a rise and after a fall.
                self._try(tree, "memory.memsw.limit_in_bytes", memory, errno.EINVAL)
                self._try(tree, "memory.limit_in_bytes", memory)
                self._try(tree, "memory.memsw.limit_in_bytes", memory)
                self._try(tree, "memory.max_usage_in_bytes", "0")
            else:
                self._try(tree, "memory.max", memory)
                self._try(tree, "memory.swap.max", "0")
            self._try(tree, "pids.max", processes)
        self._before = self._counted()

    def events(self) -> Events:
        """What they counted since then."""
        now = self._counted()
        return Events(now.oom - self._before.oom, now.refused - self._before.refused, now.peak)

    def _counted(self) -> Events:
        return counted(partial(_get, tree.fd, self._name) for tree in self._trees)

    def _try(self, tree: Tree, file: str, value: str, allowed: int = 0) -> None:
        try:
            put(tree.fd, f"{self._name}/{file}", value)
        except FileNotFoundError:  # another controller's tree, or no accounting of swap
            pass
        except OSError as error:
            if error.errno != allowed:
                raise


def prefer_for_killing(proc: int | None = None) -> None:
    """When the group's memory is spent, this process and its children go first, and those that watch them stay.

    ``proc``: a descriptor of a /proc that can be written, where the one in sight cannot.
    """
    path = "/proc/self/oom_score_adj" if proc is None else "self/oom_score_adj"
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(fd, b"1000")
    finally:
        os.close(fd)


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
        for line in _lines(reader, "memory.max_usage_in_bytes"):  # version 2 cannot count anew for each run
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
