"""A slot: a process that serves one run at a time, and has the supervisor of the next one ready.

Invariants:

- It never reads a job or a result, so that no run finds anything of another one in the memory it inherits.
- The next supervisor is forked, and in its namespaces, before anybody asks for it; it takes the connection itself.
- Few supervisors that have answered are still ending: they count against the limits of the runs after them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import NoReturn

from agent_envs.code.sandbox.zygote import linux, run, wire
from agent_envs.code.sandbox.zygote.cage import Cage

_AT_ONCE = 2
"""Supervisors that may be there while the next one is made: the kernel takes its time to take namespaces apart."""
_TAKEN, _OVER = b"t", b"o"
_children: set[int] = set()


def serve(control: int, cage: Cage, say: int) -> NoReturn:
    """Serves the runs whose connections come over the socket ``control`` until its other end is closed.

    One byte is written to ``say`` as soon as it can; the end of ``say`` without it says that it cannot.
    """
    try:
        linux.die_with_parent(signal.SIGKILL)
        cage.settle()
        os.write(say, b"r")
        os.close(say)
        orders = socket.socket(fileno=control)
        while _one_more(orders, cage):
            pass
    except OSError:
        complain()
    finally:
        os._exit(0)


def _one_more(orders: socket.socket, cage: Cage) -> bool:
    """Makes a supervisor and waits until it has a run; whether there may be another one."""
    _await_ended()
    listen, say = os.pipe()
    try:
        pid = cage.fork()
    except OSError as error:
        os.close(listen)
        os.close(say)
        return _refuse(orders, f"no process for the run: {error.strerror}")
    if pid == 0:
        os.close(listen)
        _supervise(orders, cage, say)
    _children.add(pid)
    os.close(say)
    word = os.read(listen, 1)
    os.close(listen)
    return word != _OVER


def _supervise(orders: socket.socket, cage: Cage, say: int) -> NoReturn:
    try:
        linux.die_with_parent(signal.SIGKILL)
        failure = ""
        try:
            cage.prepare()
        except OSError as error:
            failure = str(error)
        connection = _connection(orders)
        os.write(say, _OVER if connection is None else _TAKEN)
        os.close(say)
        orders.close()
        if connection is not None and failure:
            wire.write(connection, wire.pack({"fault": failure}))
        elif connection is not None:
            run.serve(cage, connection, connection)
    except wire.Gone:
        pass  # nobody waits for this run any more
    except BaseException:
        complain()
    finally:
        os._exit(0)


def _connection(orders: socket.socket) -> int | None:
    _, connections, _, _ = socket.recv_fds(orders, 1, 1)
    return connections[0] if connections else None


def _refuse(orders: socket.socket, why: str) -> bool:
    connection = _connection(orders)
    if connection is None:
        return False
    with contextlib.suppress(wire.Gone):
        wire.write(connection, wire.pack({"fault": why}))
    os.close(connection)
    return True


def _await_ended() -> None:
    reap()
    while len(_children) > _AT_ONCE:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        reap()


def reap(*_: object) -> None:
    """Takes note of children that have ended."""
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            _children.discard(pid)
    except ChildProcessError:
        _children.clear()


def complain() -> None:
    """Prints the error where the host reads it."""
    import traceback

    traceback.print_exc()
