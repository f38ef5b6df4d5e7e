"""The interface of a sandbox: a function of (files, command, limits) that returns what the command printed and changed.

Invariants:

- It has no state: a run finds the files it was given and nothing of any run before it. What an episode changes is a
  dictionary of files on the host; copying it is a fork.
- What a program does is a `RunResult`, however it ends. What the sandbox itself could not do is a `SandboxFault`: run
  it again, and never take it for the program's doing.
- The program decides nothing about its result but its own output, exit status and files: how it was ended, and what it
  used, is what the system says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from agent_envs.core import BackendUnavailable, SettingsError

_MB, _KB = 1 << 20, 1 << 10


class SandboxUnavailable(SettingsError):  # noqa: N818 (a state of this machine that a user can fix)
    """No sandbox can be had; one line that says why, and what would help."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"no sandbox: {reason}: {remedy}")
        self.reason, self.remedy = reason, remedy


class SandboxFault(BackendUnavailable):
    """The sandbox, not the program, failed; the run says nothing and can be tried again."""


@dataclass(frozen=True)
class Limits:
    """What one run may take."""

    seconds: float = 5.0
    """Wall time; the run is killed then."""
    memory_mb: int = 256
    """Memory of the run in MiB: of all its processes where control groups can be made, else of each of them."""
    processes: int = 32
    """Processes and threads at a time; fewer where memory is bounded for each of them only (`Capabilities`)."""
    disk_mb: int = 32
    """Size of all files of the run in MiB, and of the largest one."""
    inodes: int = 4096
    """Number of files and folders."""
    output_kb: int = 64
    """Standard output in KiB, and standard error again; the run is killed when either is full."""
    collected_kb: int = 4096
    """Changed files in KiB that come back; the others are named in `Result.skipped`."""
    open_files: int = 256
    """Files that a process may have open."""

    def __post_init__(self) -> None:
        least = {"memory_mb": 64, "processes": 1, "disk_mb": 1, "inodes": 16, "output_kb": 1, "open_files": 16}
        for name, value in {**least, "collected_kb": 0}.items():
            if not getattr(self, name) >= value:
                raise ValueError(f"{name} must be at least {value}, not {getattr(self, name)}")
        if not 0.05 <= self.seconds <= 3600:
            raise ValueError(f"seconds must be between 0.05 and 3600, not {self.seconds}")
        if self.memory_mb < self.needed_mb:
            raise ValueError(
                f"memory_mb must be at least {self.needed_mb} beside disk_mb={self.disk_mb}, "
                f"collected_kb={self.collected_kb} and output_kb={self.output_kb}: files lie in memory, too"
            )

    @property
    def needed_mb(self) -> int:
        """MiB that files at their fullest, and the supervisor that takes them out, need.

        With less, a program could have its supervisor killed for want of memory, which would pass for a fault.
        """
        return 2 * self.disk_mb + (2 * self.collected_kb + 4 * self.output_kb) // 1024 + 16


@dataclass(frozen=True)
class SandboxJob:
    """One command and the files it finds in its folder, by relative name."""

    argv: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("a job needs a program: argv is empty")
        if any("\0" in word for word in self.argv):
            raise ValueError("a word of argv holds a zero byte")
        for name in self.files:
            check_name(name)
        folders = {parent for name in self.files for parent in _parents(name)}
        if twice := sorted(folders & set(self.files)):
            raise ValueError(f"{twice[0]!r} is the name of a file and of a folder")
        if sum(map(len, self.files.values())) > self.limits.disk_mb * _MB:
            raise ValueError(f"the files are larger than the {self.limits.disk_mb} MiB that disk_mb allows")
        if len(self.stdin) > self.limits.disk_mb * _MB:
            raise ValueError(f"the input is larger than the {self.limits.disk_mb} MiB that disk_mb allows")
        if len(self.files) + len(folders) > self.limits.inodes:
            raise ValueError(f"there are more files than the {self.limits.inodes} that inodes allows")


def check_name(name: str) -> None:
    """Raises ValueError for a name that is not a relative path below the run's folder, as 'package/module.py' is."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is not a name of a file: use a relative path without '..'")
    if len(parts) > 16 or any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts):
        raise ValueError(f"{name[:40]!r}… is too long or too deep for the name of a file")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r} is no Unicode text") from error


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


class Status(StrEnum):
    """How a run ended."""

    OK = "ok"
    """By itself, with exit status 0."""
    ERROR = "error"
    """By itself, with another exit status or by a signal."""
    TIMEOUT = "timeout"
    """It was killed at its deadline."""
    OUTPUT_LIMIT = "output_limit"
    """It was killed because it printed too much."""
    OOM = "oom"
    """The system killed a process of it for want of memory."""
    PIDS_LIMIT = "pids_limit"
    """It failed, and the system had refused it a process or thread."""


@dataclass(frozen=True)
class RunResult:
    """What a run printed, changed and used."""

    status: Status
    exit_code: int | None
    """None when it ended by a signal."""
    signal: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Whether it printed more than is here."""
    wall: float
    """Seconds from its start to its end."""
    cpu: float
    """Seconds of processor time of all its processes that were waited for."""
    memory: int | None
    """Bytes at the peak: of the whole run where control groups count them, else of its largest process."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """New and changed files."""
    deleted: Sequence[str] = ()
    skipped: Sequence[str] = ()
    """Names that did not come back: links, devices, unreadable or too large files (100 at most)."""
    stray: bool = False
    """Whether processes were left at its end; they were killed."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit status 0."""
        return self.status is Status.OK


@dataclass(frozen=True)
class Capabilities:
    """What a sandbox keeps from a program, and by what means."""

    backend: str
    files: str
    network: str
    processes: str
    memory: str
    disk: str
    signals: str
    syscalls: str
    total_memory: bool
    """Whether memory is bounded for a run as a whole."""
    exceptions: Sequence[str] = ()
    """What it does not keep, or does not offer."""
    safe: bool = True
    """Whether programs that mean harm may be run."""

    def processes_for(self, limits: Limits) -> int:
        """How many processes a run may have: all of them, with its files, stay below 1 GiB without a total bound."""
        if self.total_memory:
            return limits.processes
        return max(1, min(limits.processes, (1024 - limits.disk_mb) // limits.memory_mb))

    def bound_mb(self, limits: Limits) -> int:
        """MiB that a run can take from the machine, files included."""
        if self.total_memory:
            return limits.memory_mb
        return self.processes_for(limits) * limits.memory_mb + limits.disk_mb


class Sandbox(Protocol):
    """Runs commands; may be used by several threads at once, and as a context manager."""

    capabilities: Capabilities

    def run(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes] | None = None,
        *,
        stdin: bytes = b"",
        limits: Limits | None = None,
    ) -> RunResult:
        """Runs one command in a folder that holds ``files``. Raises SandboxFault, and ValueError for a bad job."""
        ...

    def run_many(self, jobs: Sequence[SandboxJob]) -> list[RunResult]:
        """Runs several, as many at a time as there are workers; results in the order of the jobs."""
        ...

    def close(self) -> None:
        """Ends all runs and leaves nothing behind. Safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
