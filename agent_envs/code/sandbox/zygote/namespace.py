"""Namespaces: a run has processes, files, mounts, names and a user of its own, and no network at all.

Invariants:

- The zygote is the first process of its namespaces and has rights in them only; nothing in them has rights outside.
- The supervisor of a run is the first process of the run's own: when it ends, however, the kernel ends all others.
- The program is in a user namespace of its own below that one, without capabilities: it cannot touch the supervisor,
  and its processes are counted by themselves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Iterator, Sequence

from agent_envs.code.sandbox.zygote import cgroup, files, linux, seccomp, tree
from agent_envs.code.sandbox.zygote.cage import Bounds, Cage, Events, Refused, kill_everybody, lock_down, set_limits
from agent_envs.code.sandbox.zygote.group import Group, Tree, prefer_for_killing

_INSIDE = 1000
_ALL = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
)
_RUN = linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP


class NamespaceCage(Cage):
    """A small system of its own for every run."""

    def __init__(self, readable: Sequence[str], hidden: Sequence[str], trees: list[Tree]) -> None:
        self._readable, self._hidden = readable, hidden
        self._trees = trees
        self._group: Group | None = None
        self._filter = seccomp.program(os.uname().machine)
        self._proc = -1
        self._shows_processes = True

    def start(self) -> None:
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        cgroup.step_in(self._trees)
        user, group = os.geteuid(), os.getegid()
        with _step("make user namespaces"):
            linux.unshare(_ALL)
        cgroup.settle(self._trees)
        with _step("map a user into a user namespace"):
            _map_user(self._proc, user, group)
        _continue_as_first()
        with _step("mount a file system in a user namespace"):
            self._shows_processes = tree.make_root(self._readable, self._hidden)
        socket.sethostname("sandbox")

    def settle(self) -> None:
        if self._trees:
            self._group = Group(self._trees)
            self._group.make()

    def fork(self) -> int:
        return linux.fork(_RUN)

    def prepare(self) -> None:
        linux.set_dumpable(False)

    def enter(self, bounds: Bounds) -> None:
        tree.mount_box(bounds.disk, bounds.inodes, proc=self._shows_processes)
        if self._group is not None:
            self._group.limit(bounds)

    def confine(self, bounds: Bounds) -> None:
        linux.set_dumpable(True)
        if self._group is not None:
            prefer_for_killing(self._proc)
        linux.unshare(linux.CLONE_NEWUSER)
        linux.set_dumpable(True)
        _map_user(self._proc, _INSIDE, _INSIDE)
        set_limits(bounds, processes=True)
        lock_down(self._filter, bounding=True)

    def kill(self, pid: int) -> None:
        os.kill(-1, signal.SIGKILL)

    def end(self, pid: int) -> bool:
        return kill_everybody()

    def leave(self) -> None:
        # The kernel frees the files later, and until then counts them against the next run of the slot.
        for place in tree.PLACES.values():
            for name in os.listdir(place):
                with contextlib.suppress(OSError):
                    files.remove(f"{place}/{name}")

    def events(self) -> Events:
        return Events() if self._group is None else self._group.events()


def _map_user(proc: int, uid: int, gid: int) -> None:
    """Makes the user ``uid`` of the namespace above this one the user 1000 of this one."""
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_INSIDE} {uid} 1"),
        ("gid_map", f"{_INSIDE} {gid} 1"),
    ):
        fd = os.open(f"self/{file}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _continue_as_first() -> None:
    """Goes on as the first process of the new namespace, while this one waits for its end and ends with it."""
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    linux.die_with_parent(signal.SIGKILL)


@contextlib.contextmanager
def _step(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(f"this system does not let the sandbox {what} ({error.strerror})", _remedy(error)) from error


def _remedy(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "raise the limit: sysctl user.max_user_namespaces=10000"
    if error.errno == errno.ENOSYS:
        return "use Linux 5.12 or later"
    return (
        "allow it (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container --security-opt seccomp=unconfined)"
    )
