"""The three backends of this machine, described and as objects.

Invariant: what a backend is said to keep is what its attack tests show.
"""

from __future__ import annotations

from agent_envs.code.sandbox.interface import Capabilities, Limits
from agent_envs.code.sandbox.warm import WarmSandbox

_FILTER = "seccomp: only listed system calls"


class NamespaceSandbox(WarmSandbox):
    """A small system of its own for every run: namespaces, an own root, no rights, a filter of system calls."""

    def __init__(self, *, limits: Limits | None = None, workers: int = 2) -> None:
        super().__init__("namespace", _namespace, limits=limits, workers=workers)


class LandlockSandbox(WarmSandbox):
    """One process and one thread that opens the system's programs and its own folder, and no more."""

    def __init__(self, *, limits: Limits | None = None, workers: int = 2) -> None:
        super().__init__("landlock", _landlock, limits=limits, workers=workers)


class UnsafeProcess(WarmSandbox):
    """No cage: for programs that you trust as you trust this one."""

    def __init__(self, *, limits: Limits | None = None, workers: int = 2) -> None:
        super().__init__("process", _process, limits=limits, workers=workers)


def _namespace(total: bool, reason: str) -> Capabilities:
    memory = "control group: all processes and files of a run together"
    if not total:
        memory = f"per process, and few of them (no control group: {reason})"
    return Capabilities(
        backend="namespace",
        files="mount namespace: the system's programs, read-only, and the run's own folders",
        network="network namespace without an interface; no sockets",
        processes="PID namespace, ended as a whole; RLIMIT_NPROC of a user namespace of its own",
        memory=memory,
        disk="tmpfs of limited size and number of files",
        signals="PID namespace",
        syscalls=_FILTER,
        total_memory=total,
    )


def _landlock(total: bool, reason: str) -> Capabilities:
    return Capabilities(
        backend="landlock",
        files="Landlock: the system's programs, read-only, and the run's own folders",
        network="no sockets",
        processes="one process with one thread",
        memory="RLIMIT_AS of the one process",
        disk="RLIMIT_FSIZE: the size of one file; looked at now and then: the size and number of all files",
        signals="to itself only",
        syscalls=_FILTER,
        total_memory=True,
        exceptions=(
            "the number of files and their total size are bounded late: a program with too many is killed soon after",
            "names, sizes and times of all files of this machine can be asked for",
            "programs cannot start processes or threads, nor change modes and times of files",
        ),
    )


def _process(total: bool, reason: str) -> Capabilities:
    return Capabilities(
        backend="unsafe-process",
        files="open",
        network="open",
        processes="open; the run's process group is killed",
        memory="RLIMIT_AS of each process",
        disk="RLIMIT_FSIZE: the size of one file",
        signals="open",
        syscalls="open",
        total_memory=False,
        exceptions=("everything that this user may do, a program may do",),
        safe=False,
    )
