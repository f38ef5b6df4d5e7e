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
import traceback

from agent_envs.code.sandbox.zygote import linux, python, run, wire
from agent_envs.code.sandbox.zygote.cage import Cage

_WARM = """
argparse array ast bisect collections copy csv dataclasses datetime decimal enum fractions functools hashlib heapq io
itertools json math operator os pathlib queue random re statistics string struct tempfile textwrap threading time
traceback typing unittest
"""
"""What programs import most; a run has it at once."""


def warm() -> None:
    """Imports what programs are likely to import, and keeps it out of the garbage collector's sight."""
    for name in _WARM.split():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(control: int, cage: Cage) -> None:
    """Takes connections over the socket ``control``, one a run, until its other end is closed; never returns."""
    orders = socket.socket(fileno=control)
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        _, connections, _, _ = socket.recv_fds(orders, 1, 1)
        if not connections:
            os._exit(0)
        _start(cage, orders, connections[0], connections[0])
        os.close(connections[0])


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
        traceback.print_exc()
    finally:
        os._exit(status)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


python.remember_start()
