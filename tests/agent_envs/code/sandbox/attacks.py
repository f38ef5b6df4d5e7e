"""Programs that try to get out of a sandbox, and what would show that one did.

Invariant: an attack that did not run is not a success: each prints RAN before it begins, and its control shows the same
program doing what it is meant to do where nothing holds it. All of them are small: no control takes more than 250 MiB,
50 MiB of disk, 120 processes, or a second or two.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent_envs.code.sandbox import Capabilities, Limits, RunResult, Status

MB = 1 << 20
TIGHT = Limits(seconds=4.0, memory_mb=64, processes=16, disk_mb=8, inodes=256, output_kb=16)
WIDE = Limits(seconds=20.0, memory_mb=1024, processes=512, disk_mb=256, inodes=100_000, output_kb=4096)

PRELUDE = """
import ctypes, errno, json, os, signal, socket, sys, time
G = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)
print("RAN", flush=True)
def say(**what):
    print("SAID", json.dumps(what), flush=True)
def tries(action):
    try:
        return action() is not False  # most of them return None
    except (OSError, MemoryError, ValueError):
        return False
def children(count, action):
    pids = []
    for _ in range(count):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            try:
                action()
            except BaseException:
                os._exit(9)
            os._exit(0)
        pids.append(pid)
    return pids
def alive(pids):
    return [pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0] == 0]
def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
def touched(size):
    block = bytearray(size)
    for at in range(0, size, 4096):
        block[at] = 1
    return block
"""


@dataclass(frozen=True)
class Seen:
    """What can be looked at after an attack."""

    result: RunResult
    said: dict[str, Any]
    capabilities: Capabilities
    limits: Limits
    after: dict[str, Any]
    """What the host found: `World.look`."""


Judge = Callable[[Seen], str]
"""What got through, in words; nothing when it was held."""


@dataclass(frozen=True)
class Attack:
    """A program and its judge."""

    name: str
    program: str
    judge: Judge
    seconds: float = TIGHT.seconds
    control: bool = True
    """Whether it is shown to work on unsafe-process."""
    given: dict[str, Any] = field(default_factory=dict)
    control_given: dict[str, Any] = field(default_factory=dict)
    control_seconds: float = 10.0

    def limits(self, *, wide: bool) -> Limits:
        return replace(WIDE, seconds=self.control_seconds) if wide else replace(TIGHT, seconds=self.seconds)

    def source(self) -> str:
        return PRELUDE + self.program


def told(key: str, what: str) -> Judge:
    return lambda seen: what if seen.said[key] else ""


def above(key: str, most: Callable[[Seen], float], what: str) -> Judge:
    def judge(seen: Seen) -> str:
        got = seen.said[key]
        return f"{what}: {got} where {most(seen)} are allowed" if got > most(seen) else ""

    return judge


def or_killed(judge: Judge) -> Judge:
    """Where files are bounded late only, the program may be killed for their number before it says anything."""
    return lambda seen: "" if seen.capabilities.backend == "landlock" and seen.result.signal == 9 else judge(seen)


def after(key: str, what: str) -> Judge:
    return lambda seen: what if seen.after[key] else ""


def killed_in_time(seen: Seen) -> str:
    late = seen.result.wall - seen.limits.seconds
    if seen.result.status is not Status.TIMEOUT:
        return f"it ended as {seen.result.status}"
    return f"killed {late:.2f} s late" if late > seen.after["patience"] else ""


def flood(stream: str) -> Judge:
    def judge(seen: Seen) -> str:
        got, most = len(getattr(seen.result, stream)), seen.limits.output_kb * 1024
        if got > most:
            return f"{got} bytes where {most} are allowed"
        return "" if seen.result.status is Status.OUTPUT_LIMIT else f"it ended as {seen.result.status}"

    return judge


def total_memory(seen: Seen) -> float:
    if seen.capabilities.total_memory:
        return seen.limits.memory_mb * 1.1
    bound = seen.capabilities.bound_mb(seen.limits)
    assert bound <= 1024, bound
    return bound


def processes(seen: Seen) -> float:
    return seen.capabilities.processes_for(TIGHT)


def followed(seen: Seen) -> str:
    if any(seen.after["secret"].encode() in data for data in seen.result.files.values()):
        return "the host followed it"
    return "" if seen.result.files.get("fine.txt") == b"fine" and seen.said["done"] else "nothing came back"


def said(result: RunResult) -> dict[str, Any]:
    """The last thing the program said; raises AssertionError when it did not even begin."""
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    assert lines and lines[0] == "RAN", (
        f"it did not run: {result.status} {result.stdout[-300:]!r} {result.stderr[-600:]!r}"
    )
    spoken = [line for line in lines if line.startswith("SAID ")]
    return json.loads(spoken[-1][5:]) if spoken else {}
