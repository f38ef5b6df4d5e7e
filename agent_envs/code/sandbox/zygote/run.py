"""One run: the files come in, the program is supervised until it ends or must, and what it left goes out.

Invariants:

- The program has a deadline in wall time, bounded output and no more than its bounds; whatever it does, this ends.
- No pipe is waited for: a process that outlives the program and holds its output is killed.
- Files are read only when every process of the run is dead.
"""

from __future__ import annotations

import os
import resource
import select
import time
from typing import Any

from agent_envs.code.sandbox.zygote import files, payload, wire
from agent_envs.code.sandbox.zygote.cage import Bounds, Cage

_CHUNK = 1 << 16


class Fault(Exception):  # noqa: N818
    """The sandbox, not the program, failed."""


class Ended:
    """How a program ended."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.timeout = self.flooded = False
        self.stray = False  # something that it started was alive after its end
        self.wall = 0.0
        self.output = {1: bytearray(), 2: bytearray()}


def serve(cage: Cage, source: int, sink: int) -> None:
    """Reads one job, runs it and writes its result, or the fault that kept it from running. Raises wire.Gone."""
    try:
        _serve(cage, source, sink)
    finally:
        if cage.leaves_late:
            _left(cage)


def _serve(cage: Cage, source: int, sink: int) -> None:
    header, (stdin, *contents) = wire.unpack(wire.read(source))
    bounds = Bounds(**header["bounds"])
    given = dict(zip(header["names"], contents, strict=True))
    dirty = False
    try:
        try:
            cage.enter(bounds)
            with cage.as_owner():
                files.put(cage.work, given)
            ended = _supervise(cage, header["argv"], stdin, bounds, source)
            with cage.as_owner():
                found = files.take(cage.work, given, bounds.collected)
            events = cage.events()
        finally:
            if not cage.leaves_late:
                dirty = not _left(cage)
    except (OSError, Fault) as error:
        wire.write(sink, wire.pack({"fault": f"{type(error).__name__}: {error}"}))
        return
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    result: dict[str, Any] = {
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "timeout": ended.timeout,
        "flooded": ended.flooded,
        "stray": ended.stray or dirty,
        "wall": ended.wall,
        "cpu": usage.ru_utime + usage.ru_stime,
        "rss": usage.ru_maxrss * 1024,
        "events": events._asdict(),
        "names": list(found.changed),
        "deleted": found.deleted,
        "skipped": found.skipped,
    }
    own, shown = cage.shown.encode(), b"/work"
    out = [bytes(ended.output[fd]).replace(own, shown) for fd in (1, 2)]
    wire.write(sink, wire.pack(result, [*out, *found.changed.values()]))


def _left(cage: Cage) -> bool:
    try:
        cage.leave()
    except OSError:
        return False
    return True


def _supervise(cage: Cage, argv: list[str], stdin: bytes, bounds: Bounds, source: int) -> Ended:
    inner, outer = {}, {}
    for fd in (0, 1, 2):
        read, write = os.pipe()
        inner[fd], outer[fd] = (read, write) if fd == 0 else (write, read)
    said, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        payload.become(cage, argv, bounds, inner, say)
    for fd in (*inner.values(), say):
        os.close(fd)
    refusal = _refusal(said, bounds.seconds)
    started = time.monotonic()
    ended = Ended()
    watch = _Watch(pid, outer, stdin, source, bounds, cage)
    try:
        watch.until(started + bounds.seconds, ended)
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            cage.kill(pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        ended.wall = time.monotonic() - started
        ended.stray = cage.end(pid)
        watch.rest(ended)
    finally:
        watch.close()
    if refusal:
        raise Fault(refusal)
    if status < 0:
        ended.signal = -status
    else:
        ended.exit_code = status
    return ended


def _refusal(said: int, seconds: float) -> str:
    """What kept the process from becoming the program; nothing when it did."""
    poller = select.poll()
    poller.register(said, select.POLLIN)
    text = os.read(said, 4096).decode("utf-8", "replace") if poller.poll(max(seconds, 5.0) * 1000) else "it hangs"
    os.close(said)
    return text


class _Watch:
    """The program's pipes and its end, and the one who waits for its result."""

    def __init__(self, pid: int, pipes: dict[int, int], stdin: bytes, source: int, bounds: Bounds, cage: Cage) -> None:
        self._bounds, self._cage = bounds, cage
        self._most = bounds.output
        self._rest = memoryview(stdin)
        self._open = {pipe: fd for fd, pipe in pipes.items()}
        self._end = os.pidfd_open(pid)
        self._source = source
        self._poller = select.poll()
        self._poller.register(self._end, select.POLLIN)
        self._poller.register(source, 0)
        for fd, pipe in pipes.items():
            os.set_blocking(pipe, False)
            self._poller.register(pipe, select.POLLIN if fd else select.POLLOUT)
        if not stdin:
            self._drop(pipes[0])

    def until(self, deadline: float, ended: Ended) -> None:
        """Moves what comes and goes until the program ends, floods, or the deadline; raises Gone for the waiter's."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                ended.timeout = True
                return
            if self._cage.crowded(self._bounds):
                return
            for fd, event in self._poller.poll(min(left, self._cage.tick()) * 1000 + 1):
                if fd == self._end:
                    return
                if fd == self._source:
                    if event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                        raise wire.Gone("nobody waits for this run")
                elif self._open[fd] == 0:
                    self._feed(fd)
                elif not self._drain(fd, ended):
                    ended.flooded = True
                    return

    def rest(self, ended: Ended) -> None:
        """What is left in the pipes; nobody writes any more."""
        for pipe in [pipe for pipe, fd in self._open.items() if fd]:
            while pipe in self._open:
                before = len(ended.output[self._open[pipe]])
                if not self._drain(pipe, ended):
                    ended.flooded = True
                    break
                if pipe in self._open and len(ended.output[self._open[pipe]]) == before:
                    break  # held open by something that could not be killed

    def close(self) -> None:
        for pipe in list(self._open):
            self._drop(pipe)
        os.close(self._end)

    def _drop(self, pipe: int) -> None:
        self._poller.unregister(pipe)
        del self._open[pipe]
        os.close(pipe)

    def _feed(self, pipe: int) -> None:
        try:
            self._rest = self._rest[os.write(pipe, self._rest[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._rest = self._rest[:0]
        if not self._rest:
            self._drop(pipe)

    def _drain(self, pipe: int, ended: Ended) -> bool:
        """Reads once; whether the output is still within its bound."""
        kept = ended.output[self._open[pipe]]
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            self._drop(pipe)
            return True
        kept += data[: self._most - len(kept)]
        return len(kept) < self._most
