"""The zygote: a warm interpreter that forks once for every run.

Invariant: it never reads a job or a result, so that no run finds anything of another one in the memory it inherits.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence

from agent_envs.code.sandbox.zygote import linux, python, run, wire
from agent_envs.code.sandbox.zygote.cage import Cage

_WARM = "bisect collections copy datetime functools heapq itertools json math operator random re string typing"
"""What programs import most; a run has it at once."""

NO_GROUP = 5
"""Exit status of a zygote whose slots cannot have control groups."""


def warm() -> None:
    """Imports what programs are likely to import, and keeps it out of the garbage collector's sight."""
    for name in _WARM.split():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(controls: Sequence[int], cage: Cage, ready: Callable[[], None]) -> None:
    """Serves a run at a time over each of the sockets, until one of them is closed; never returns.

    Each has a slot, a process with a control group of its own, into which the runs are born: to move a process between
    groups takes the kernel longer than the whole run. ``ready`` is called when all of them wait for a run.
    """
    listen, say = os.pipe()
    for control in controls:
        if os.fork() == 0:
            os.close(listen)
            for other in controls:
                if other != control:
                    os.close(other)
            _be_slot(control, cage, say)
    os.close(say)
    for control in controls[1:]:
        os.close(control)
    for _ in controls:
        if not os.read(listen, 1):
            os._exit(NO_GROUP)
    os.close(listen)
    ready()
    os.close(controls[0])
    os.wait()
    os._exit(0)  # and the other slots with it


def _be_slot(control: int, cage: Cage, say: int) -> None:
    try:
        linux.die_with_parent(signal.SIGKILL)
        cage.settle()
        os.write(say, b"r")
        os.close(say)
        orders = socket.socket(fileno=control)
        signal.signal(signal.SIGCHLD, _reap)
        while True:
            _, connections, _, _ = socket.recv_fds(orders, 1, 1)
            if not connections:
                break
            _await_ended()
            _unreaped.add(_start(cage, orders, connections[0], connections[0]))
            os.close(connections[0])
    except OSError:
        _complain()
    finally:
        os._exit(0)


def serve_stream(cage: Cage, source: int, sink: int) -> None:
    """Takes one run after the other over two streams, until the first of them ends; never returns."""
    poller = select.poll()
    poller.register(source, select.POLLIN)
    while True:
        ready = poller.poll()
        if not ready[0][1] & select.POLLIN:
            os._exit(0)
        pid = _start(cage, None, source, sink)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        _reap()


def _start(cage: Cage, orders: socket.socket | None, source: int, sink: int) -> int:
    try:
        pid = cage.fork()
    except OSError as error:
        with contextlib.suppress(wire.Gone):
            wire.write(sink, wire.pack({"fault": f"no process for the run: {error.strerror}"}))
        return 0
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if orders is not None:
            linux.die_with_parent(signal.SIGKILL)
            orders.close()
        run.serve(cage, source, sink)
        status = 0
    except wire.Gone:
        pass  # nobody waits for this run any more
    except BaseException:
        _complain()
    finally:
        os._exit(status)


def _complain() -> None:
    import traceback

    traceback.print_exc()


_unreaped: set[int] = set()
_AT_ONCE = 2
"""Supervisors that may be ending while the next run begins: the kernel takes its time to take namespaces apart."""


def _await_ended() -> None:
    """They count against the limits of the next run: here they are waited for when they become many."""
    while len(_unreaped) > _AT_ONCE:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        _reap()


def _reap(*_: object) -> None:
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            _unreaped.discard(pid)
    except ChildProcessError:
        _unreaped.clear()


python.remember_start()
