"""The zygote: a warm interpreter that everything else is a fork of.

Invariant: it never reads a job or a result, so that no run finds anything of another one in the memory it inherits.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
from collections.abc import Callable, Sequence

from agent_envs.code.sandbox.zygote import payload, processors, python, run, slot, wire
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
    gc.disable()  # a collection writes to pages that the next fork would share; the program's process turns it on


def _settle(cage: Cage) -> None:
    """Does once what every program would have to do: a fork pays for each page of memory that it touches."""
    payload.set_environment(cage.temporary)
    python.hide_ours()
    python.make_streams()
    gc.freeze()


def serve(controls: Sequence[int], cage: Cage, ready: Callable[[], None]) -> None:
    """Serves a run at a time over each of the sockets, until one of them is closed; never returns.

    Each has a slot, a process with a control group of its own, into which the runs are born: to move a process between
    groups takes the kernel longer than the whole run. ``ready`` is called when all of them wait for a run.
    """
    _settle(cage)
    listen, say = os.pipe()
    for worker, control in enumerate(controls):
        if os.fork() == 0:
            processors.keep_to_own(worker, len(controls))
            os.close(listen)
            for other in controls:
                if other != control:
                    os.close(other)
            slot.serve(control, cage, say)
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


def serve_stream(cage: Cage, source: int, sink: int) -> None:
    """Takes one run after the other over two streams, until the first of them ends; never returns."""
    _settle(cage)
    poller = select.poll()
    poller.register(source, select.POLLIN)
    while True:
        ready = poller.poll()
        if not ready[0][1] & select.POLLIN:
            os._exit(0)
        before = cage.counted()
        pid = cage.fork()
        if pid == 0:
            _serve_one(cage, source, sink)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status) and cage.counted().oom > before.oom:  # the program had its supervisor killed
            wire.write(sink, wire.pack({"oom": True}))
        slot.reap()  # what the engine started in here


def _serve_one(cage: Cage, source: int, sink: int) -> None:
    status = 1
    try:
        cage.prepare()
        run.serve(cage, source, sink)
        status = 0
    except wire.Gone:
        pass  # nobody waits for this run any more
    except BaseException:
        slot.complain()
    finally:
        os._exit(status)


python.remember_start()
