"""The host's side of a zygote: the namespace, landlock and unsafe-process backends.

Invariants:

- A run has a connection of its own, which ends in the run's own supervisor: the zygote sees no job.
- Every run ends: when its supervisor does not answer in time, the zygote and all its runs are killed, those of other
  threads too (their `SandboxFault` says so), and the next run starts a new one.
- A program reads no installed package, and so none of the reference solutions of the coding tasks.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from agent_envs.code.sandbox import bundle
from agent_envs.code.sandbox.interface import (
    Capabilities,
    Limits,
    RunResult,
    SandboxFault,
    SandboxJob,
    SandboxUnavailable,
)
from agent_envs.code.sandbox.pooled import PooledSandbox
from agent_envs.code.sandbox.results import message_of, most_bytes, result_of
from agent_envs.code.sandbox.zygote import cgroup, files, wire
from agent_envs.code.sandbox.zygote.syscalls import numbers
from agent_envs.isolation.child import Channel, Child, Oversize

_START = 30.0
_GRACE = 10.0
"""Seconds after its deadline in which a run's result must be here."""
_ENDING = 1.0
"""Seconds that a sandbox which ends may take to be seen ended."""
_SOON = 0.05
"""Seconds in which a supervisor that has answered mostly ends."""
_OF_PREFIX = ("bin", "lib", "lib32", "lib64", "libexec")
"""Folders of Python's own that it needs."""
_SYSTEM = ("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/sbin")


@dataclass
class _Zygote:
    child: Child
    slots: list[socket.socket]
    free: queue.LifoQueue[socket.socket]
    total_memory: bool
    no_group: str
    made: list[str]


class WarmSandbox(PooledSandbox):
    """Runs jobs in forks of a warm interpreter; ``cage`` says how they are caged.

    ``describe`` tells the capabilities, given whether the memory of a run is bounded as a whole and why not.
    Raises SandboxUnavailable.
    """

    def __init__(
        self,
        cage: str,
        describe: Callable[[bool, str], Capabilities],
        *,
        limits: Limits | None = None,
        workers: int = 2,
    ) -> None:
        super().__init__(limits, workers)
        self._cage = cage
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(workers)
        self._closed = False
        self._zygote: _Zygote | None = self._start()
        self._bounded = self._zygote.total_memory
        """Whether control groups bound a run's memory; a cage may bound it without them."""
        self.capabilities = describe(self._bounded, self._zygote.no_group)

    @property
    def pid(self) -> int:
        """Of the keeper, the process above all others of this sandbox."""
        return self._running().child.pid

    @property
    def made(self) -> list[str]:
        """Folders on this machine that exist while the sandbox is open: of control groups, and of runs."""
        return self._running().made

    def close(self) -> None:
        """Ends all runs and leaves nothing behind. Safe to call twice."""
        with self._lock:
            self._closed = True
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            _end(zygote)

    def _run(self, job: SandboxJob) -> RunResult:
        message = message_of(job, self.capabilities)
        self._slots.acquire()
        give_back: Callable[[], None] = self._slots.release
        try:
            zygote = self._running()
            try:
                ours, theirs = socket.socketpair()
            except OSError as error:
                raise SandboxFault(f"no connection for the run can be made ({error.strerror})") from error
            slot = zygote.free.get_nowait()
            channel = Channel(ours)
            give_back = partial(self._give_back, zygote, slot, channel)
            try:
                with theirs:
                    socket.send_fds(slot, [b"r"], [theirs.fileno()])
                deadline = monotonic() + job.limits.seconds + _GRACE
                channel.send_bytes(message, _GRACE)
                result = result_of(channel.recv_bytes(deadline - monotonic(), most_bytes(job)), job)
            except Oversize as error:  # its supervisor ends with the connection; the other runs go on
                raise SandboxFault(f"the run did not answer as it must ({error})") from error
            except TimeoutError as error:
                self._drop(zygote)
                raise SandboxFault("the run did not answer in time") from error
            except (EOFError, OSError) as error:
                lost = "the process of the run was ended from outside"
                zygote.child.ending(_ENDING)
                if not zygote.child.alive:
                    lost = f"the sandbox ended ({zygote.child.ending(1)}): {_last_line(zygote.child)}"
                    self._drop(zygote)
                raise SandboxFault(lost) from error
            if not _over(channel, _SOON):  # its memory is freed by then, and counts against no other run
                give_back = threading.Thread(target=self._wait_for_end, args=(give_back, channel), daemon=True).start
            return result
        finally:
            give_back()

    def _give_back(self, zygote: _Zygote, slot: socket.socket, channel: Channel) -> None:
        zygote.free.put(slot)
        channel.close()
        self._slots.release()

    def _wait_for_end(self, give_back: Callable[[], None], channel: Channel) -> None:
        """Gives a worker back when its supervisor ends; some remove the files of a run first, which takes long."""
        _over(channel, None)
        give_back()

    def _running(self) -> _Zygote:
        with self._lock:
            if self._closed:
                raise RuntimeError("this sandbox is closed")
            if self._zygote is not None and not self._zygote.child.alive:
                _end(self._zygote)
                self._zygote = None
            if self._zygote is None:
                try:
                    zygote = self._start()
                except SandboxUnavailable as error:
                    raise SandboxFault(f"the sandbox does not start again: {error.reason}") from error
                if zygote.total_memory != self._bounded:
                    _end(zygote)
                    raise SandboxFault("the sandbox starts again with another bound of memory")
                self._zygote = zygote
            return self._zygote

    def _drop(self, zygote: _Zygote) -> None:
        with self._lock:
            if self._zygote is zygote:
                self._zygote = None
        _end(zygote)

    def _start(self) -> _Zygote:
        _check_machine()
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as undo:
            slots, controls = [], []
            try:
                for _ in range(self._workers):
                    ours, other = socket.socketpair()
                    slots.append(undo.enter_context(ours))
                    controls.append(theirs.enter_context(other).fileno())
                code = bundle.message("keeper", self._config(controls))
                child = Child("agent_envs.code.sandbox.launch", output_mb=1, secrets=False, pass_fds=controls)
            except OSError as error:
                reason = f"its process cannot be started ({error.strerror or error})"
                remedy = "free some memory, or allow more open files and processes (ulimit -n, ulimit -u)"
                raise SandboxUnavailable(reason, remedy) from error
            undo.callback(child.kill)
            theirs.close()
            header = _report(child, code, Channel(slots[0]))
            undo.pop_all()
        free: queue.LifoQueue[socket.socket] = queue.LifoQueue()
        for slot in slots:
            slot.settimeout(_GRACE)
            free.put(slot)
        return _Zygote(child, slots, free, header["total_memory"], header["no_group"], header["made"])

    def _config(self, controls: list[int]) -> dict[str, object]:
        prefix = os.path.realpath(sys.base_prefix)
        own = [os.path.join(top, name) for top in (sys.base_prefix, prefix) for name in _OF_PREFIX]
        readable = list(dict.fromkeys([*_SYSTEM, *own]))
        return {
            "cage": self._cage,
            "controls": controls,
            "readable": readable,
            "hidden": _hidden(readable),
            "prefix": prefix,
            "temporary": _temporary(),
        }


def _hidden(readable: list[str]) -> list[str]:
    """Folders of installed packages below the readable ones, and this package itself where it lies there."""
    found = [path for folder in readable for path in Path(folder).glob("python3*/*-packages")]
    found.append(Path(__file__).parents[2])
    paths = dict.fromkeys(text for path in found for text in (str(path), os.path.realpath(path)))
    tops = {*readable, *map(os.path.realpath, readable)}
    return [path for path in paths if any(path.startswith(top + os.sep) for top in tops)]


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        remedy = "set TMPDIR to a folder that can be written, or free some space"
        raise SandboxUnavailable("no temporary folder can be written", remedy) from error


def _report(child: Child, code: bytes, report: Channel) -> dict[str, Any]:
    """What the zygote says when it is ready, once its keeper has its code. Raises SandboxUnavailable."""
    try:
        with contextlib.suppress(EOFError, TimeoutError):  # why is seen below
            child.send_bytes(code, _START)
        header, _ = wire.unpack(report.recv_bytes(_START, 1 << 16))
    except (EOFError, TimeoutError, ValueError) as error:
        reason = f"its process does not start ({child.ending(1)}): {_last_line(child)}"
        raise SandboxUnavailable(reason, "see whether this interpreter runs with the options -S -P") from error
    if not header["ready"]:
        child.ending(2)
        raise SandboxUnavailable(header["reason"], header["remedy"])
    return header


def _check_machine() -> None:
    if sys.platform != "linux":
        raise SandboxUnavailable(f"there are no namespaces and no Landlock on {sys.platform}", "use docker, or Linux")
    machine = os.uname().machine
    try:
        numbers(machine)
    except KeyError as error:
        reason = f"its list of system calls has no column for {machine}"
        raise SandboxUnavailable(reason, "use docker on an x86_64 or aarch64 machine") from error


def _end(zygote: _Zygote) -> None:
    """Lets the keeper end its zygote and clean up; what it leaves, being killed or stuck, is cleaned up here."""
    for slot in zygote.slots:
        with contextlib.suppress(OSError):
            slot.shutdown(socket.SHUT_RDWR)
    for number in (signal.SIGTERM, signal.SIGCONT):
        if zygote.child.alive:
            os.kill(zygote.child.pid, number)
    zygote.child.ending(_GRACE)
    zygote.child.kill()
    for slot in zygote.slots:
        slot.close()
    for path in map(Path, zygote.made):
        if (path / "cgroup.procs").exists():
            cgroup.remove_folder(path)
        elif path.exists():
            with contextlib.suppress(OSError):
                files.remove(str(path))


def _over(channel: Channel, seconds: float | None) -> bool:
    """Waits for the end of a supervisor that has answered; whether it came within ``seconds``."""
    try:
        channel.recv_bytes(seconds, 0)
    except TimeoutError:
        return False
    except (EOFError, Oversize):
        pass
    return True


def _last_line(child: Child) -> str:
    lines = child.tail().strip().splitlines()
    return lines[-1][:300] if lines else "it printed nothing"
