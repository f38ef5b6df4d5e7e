"""``python -m agent_envs.isolation.grader_process``: calls one function of an outside library, over JSON.

Invariants: every call is computed in a fork of its own, so that none can leave anything behind for the next, and one
that dies costs no second start. A fork computes and reads, and nothing else: opening a file to write, starting a
program, connecting anywhere or loading C code by hand ends it at once. A library that evaluates what a model wrote must
not carry it out. (That is a second fence: what is known to be evaluated should be refused before it is sent.)
"""

import faulthandler
import json
import os
import pkgutil
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from agent_envs.isolation.answers import answered, encode
from agent_envs.isolation.child import Channel, connect
from agent_envs.isolation.faults import FaultKind
from agent_envs.isolation.host import limit_memory

_REFUSED = (
    "ctypes.",
    "fcntl.",
    "mmap.",
    "os.",
    "pty.",
    "resource.",
    "shutil.",
    "signal.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "syslog.",
    "tempfile.",
    "urllib.",
)
_ALLOWED = frozenset({"os.listdir", "os.scandir", "os.walk", "os.fwalk"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_START_LIMIT = 1024
"""Bytes of the answer that says whether the function is there."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def fence(channel: Channel, serial: int) -> None:
    """From now on, and without a way back (PEP 578), this process ends when it does what it must not do."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            bad = isinstance(arguments[2], int) and arguments[2] & _WRITES
        else:
            bad = event.startswith(_REFUSED) and event not in _ALLOWED
        if bad:
            channel.send_bytes(encode([serial, FaultKind.RAISED, f"refused: {event}"]))
            os._exit(0)

    sys.addaudithook(hook)


def compute(channel: Channel, function: Callable[..., Any], request: bytes, limits: dict[str, Any]) -> None:
    """Answers one request, within the limits."""
    number, _, arguments = request.partition(b" ")
    serial = int(number)
    limit_memory(limits["memory_mb"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_seconds"], limits["cpu_seconds"] + 1))
    fence(channel, serial)
    channel.send_bytes(
        answered(
            serial,
            lambda: function(*json.loads(arguments.decode("utf-8", "surrogatepass"))),
            limits["output_kb"] * 1024,
        )
    )


def ending(status: int, cpu_seconds: int) -> tuple[str, str]:
    """What broke, and how, by the wait status of a fork."""
    if not os.WIFSIGNALED(status):
        return FaultKind.EXITED, f"exit status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return FaultKind.HUNG, f"no answer in {cpu_seconds} s of computing"
    return FaultKind.EXITED, f"signal {signal.Signals(number).name}"


def serve(channel: Channel) -> None:
    """Answers requests until the parent is gone."""
    target, limits = json.loads(channel.recv_bytes())
    sys.dont_write_bytecode = True  # what is imported late must not be taken for writing
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # threads would not come along into a fork
    found: list[Callable[..., Any]] = []
    channel.send_bytes(answered(-1, lambda: found.append(pkgutil.resolve_name(target)), _START_LIMIT))
    while found:
        try:
            request = channel.recv_bytes()
        except EOFError:
            return
        fork = os.fork()
        if fork == 0:
            try:
                compute(channel, found[0], request, limits)
            except BaseException:
                faulthandler.dump_traceback()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(fork, 0)
        if status:
            kind, how = ending(status, limits["cpu_seconds"])
            channel.send_bytes(encode([int(request.partition(b" ")[0]), kind, how]))


if __name__ == "__main__":
    faulthandler.enable()
    serve(connect())
