"""``python -m agent_envs.outside_process``: one function of an outside library, asked in JSON.

Invariant: once the function is imported, this process computes and reads, and nothing else. Opening a file to write,
starting a program, connecting anywhere or loading C code by hand ends it at once: a library that evaluates what a model
wrote must not carry it out. (That is a second fence: what is known to be evaluated should be refused before it is
sent.)
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import math
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from agent_envs.answers import OK, SETTINGS, encode
from agent_envs.child import Channel, connect
from agent_envs.core import SettingsError
from agent_envs.faults import FaultKind, one_line
from agent_envs.host import limit_memory
from agent_envs.outside import REFUSED

_REFUSED = (
    "ctypes.",
    "fcntl.",
    "mmap.",
    "os.",
    "pty.",
    "shutil.",
    "signal.",
    "socket.",
    "subprocess.",
    "sqlite3.",
    "syslog.",
    "tempfile.",
    "urllib.",
)
_ALLOWED = frozenset({"os.listdir", "os.scandir", "os.walk", "os.fwalk"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def fence(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook (PEP 578), which cannot be taken away again."""
    if event == "open":
        bad = isinstance(arguments[2], int) and arguments[2] & _WRITES
    else:
        bad = event.startswith(_REFUSED) and event not in _ALLOWED
    if bad:
        os.write(2, f"{REFUSED}{event}\n".encode())
        os._exit(3)


def allow_computing(seconds: int) -> None:
    """From now on so much computing time; then the system ends this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = math.ceil(used.ru_utime + used.ru_stime)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, hard))


def answer(function: Callable[..., Any], request: bytes, limit: int) -> bytes:
    """[number, "ok", value], or [number, what broke, in one line why], as JSON of about ``limit`` bytes at most."""
    serial, arguments = json.loads(request.decode("utf-8", "surrogatepass"))
    try:
        encoded = encode([serial, OK, function(*arguments)])
        if len(encoded) > limit:
            return encode([serial, FaultKind.FLOODED, f"an answer of {len(encoded)} bytes, where {limit} are allowed"])
        return encoded
    except MemoryError as error:
        return encode([serial, FaultKind.MEMORY, why(error)])
    except Exception as error:
        return encode([serial, FaultKind.RAISED, why(error)])


def why(error: BaseException) -> str:
    try:
        return one_line(error).encode("utf-8", "replace").decode()
    except Exception:
        return type(error).__name__


def load(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def serve(channel: Channel) -> None:
    """Answers requests until the parent is gone."""
    target, limits = json.loads(channel.recv_bytes())
    sys.dont_write_bytecode = True  # what is imported late must not be taken for writing
    limit_memory(limits["memory_mb"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        function = load(target)
    except SettingsError as error:
        channel.send_bytes(encode([-1, SETTINGS, str(error)[:500]]))
        return
    except Exception as error:
        channel.send_bytes(encode([-1, FaultKind.RAISED, why(error)]))
        return
    sys.addaudithook(fence)
    channel.send_bytes(encode([-1, OK, None]))
    while True:
        try:
            request = channel.recv_bytes()
        except EOFError:
            return
        allow_computing(limits["cpu_seconds"])
        channel.send_bytes(answer(function, request, limits["output_kb"] * 1024))


if __name__ == "__main__":
    faulthandler.enable()
    serve(connect())
