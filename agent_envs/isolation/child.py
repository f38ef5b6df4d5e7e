"""A Python process that cannot outlive its use: it can be killed at any moment, and it dies when its parent does.

Invariants:

- The child leads a session and a process group of its own. What it starts stays in that group unless it leaves it by a
  ``setsid`` or ``setpgid`` of its own, and dies with it.
- Nothing that a child does blocks its parent: everything read or written has a deadline, and what it prints is drained.
- When the parent ends in any way, ``kill -9`` included, the group is killed, even while it hangs in C code. (A fork of
  the parent that never started another program counts as the parent.)

The parent's side is `Child`; a module that is to run as one calls `connect` first thing in its main.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from time import monotonic
from typing import IO

_HEADER = struct.Struct("!Q")
_GIVEN = "TURNWISE_CHILD"
_TAIL = 4096
_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
_LOOK = 1.0
"""Seconds after which a wait looks whether there is still somebody to wait for."""


class Oversize(ValueError):  # noqa: N818
    """A message is longer than it may be."""


class Channel:
    """Whole messages of bytes over a stream socket; one thread may send while another receives.

    A message is never read in part: after a TimeoutError of `recv_bytes` it can be called again.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._buffer = bytearray()
        self._sending, self._receiving = threading.Lock(), threading.Lock()

    def send_bytes(self, data: bytes, timeout: float | None = None) -> None:
        """Sends one message. Raises EOFError when nobody is there, TimeoutError after ``timeout`` seconds."""
        deadline = None if timeout is None else monotonic() + timeout
        rest = memoryview(_HEADER.pack(len(data)) + data)
        with self._sending:
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    self._wait(select.POLLOUT, deadline)
                except OSError as error:
                    raise EOFError("the other side is gone") from error

    def recv_bytes(self, timeout: float | None = None, max_bytes: int = 1 << 40) -> bytes:
        """The next message.

        Raises EOFError when nobody is there, TimeoutError after ``timeout`` seconds, Oversize for a message longer than
        ``max_bytes``, of which no more is read.
        """
        deadline = None if timeout is None else monotonic() + timeout
        with self._receiving:
            self._fill(_HEADER.size, deadline)
            end = _HEADER.size + _HEADER.unpack_from(self._buffer)[0]
            if end > _HEADER.size + max_bytes:
                raise Oversize(f"a message of {end - _HEADER.size} bytes, where {max_bytes} are allowed")
            self._fill(end, deadline)
            message = bytes(memoryview(self._buffer)[_HEADER.size : end])
            del self._buffer[:end]
            return message

    def close(self) -> None:
        """Ends the connection, also for a thread that waits for it now. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # Only when nobody waits for it: its number may be given to another file at once.
        with self._sending, self._receiving:
            self._socket.close()

    def _fill(self, size: int, deadline: float | None) -> None:
        while len(self._buffer) < size:
            try:
                chunk = self._socket.recv(1 << 16)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            except OSError as error:
                raise EOFError("the other side is gone") from error
            if not chunk:
                raise EOFError("the other side is gone")
            self._buffer += chunk

    def _wait(self, event: int, deadline: float | None) -> None:
        if self._socket.fileno() < 0:
            raise EOFError("this side is closed")
        poller = select.poll()
        poller.register(self._socket, event)
        while True:
            left = _LOOK if deadline is None else deadline - monotonic()
            # After its end a process may leave messages behind: they are read before anybody gives up.
            there = self._there()
            if poller.poll(max(0.0, min(left, _LOOK)) * 1000 if there else 0):
                return
            if not there:
                raise EOFError("the other side is gone")
            if deadline is not None and monotonic() >= deadline:
                raise TimeoutError

    def _there(self) -> bool:
        """Whether there can be somebody at the other end."""
        return True


def _start(module: str, end: int, held: int, pass_fds: Sequence[int], secrets: bool) -> subprocess.Popen[bytes]:
    """Starts the module with its end of the connection and the read end of the lifeline. Raises OSError."""
    given = {"socket": end, "lifeline": held, "PYTHONPATH": os.environ.get("PYTHONPATH")}
    variables = {name: value for name, value in os.environ.items() if secrets or not _SECRET.search(name)}
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pass_fds=(end, held, *pass_fds),
        start_new_session=True,
        env={**variables, "PYTHONPATH": paths, _GIVEN: json.dumps(given)},
    )


class Child(Channel):
    """``python -m module`` in a process of its own, and the parent's end of the connection to it.

    The child has this process's ``sys.path``, reads nothing and prints into a pipe. After ``output_mb`` MiB of print it
    is killed, and ``flooded`` is true. Without ``secrets`` it has no environment variable whose name says that it holds
    a key, a token, a password or another secret. It keeps the open files ``pass_fds`` under their numbers.
    Raises OSError where the system has no process or no open file left.
    """

    def __init__(
        self, module: str, *, output_mb: float = 64.0, secrets: bool = True, pass_fds: Sequence[int] = ()
    ) -> None:
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                held, self._lifeline = os.pipe()
                undo.callback(os.close, self._lifeline)
                try:
                    self._process = _start(module, theirs.fileno(), held, pass_fds, secrets)
                finally:
                    os.close(held)
            super().__init__(ours)
            self.pid = self._process.pid
            self.flooded = False
            self._printed, self._limit, self._tail = 0, int(output_mb * 2**20), b""
            self._ending, self._closing = threading.Lock(), threading.Lock()
            self._killed = self._closed = False
            assert self._process.stdout is not None
            self._drainer = threading.Thread(target=self._drain, args=(self._process.stdout,), daemon=True)
            self._drainer.start()
            undo.pop_all()

    @property
    def alive(self) -> bool:
        """Whether the process still runs; when it ended by itself, what it started is killed."""
        if self._process.poll() is None:
            return True
        self._kill_group()
        return False

    def tail(self) -> str:
        """The last 4 KiB of what it printed, stdout and stderr as they came."""
        return self._tail.decode("utf-8", "replace")

    def ending(self, grace: float = 0.0) -> str:
        """How the process ended: "exit status 3", "signal SIGKILL"; "still running" after ``grace`` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        if self.alive:
            return "still running"
        self._drainer.join(grace)
        status = self._process.returncode
        if status >= 0:
            return f"exit status {status}"
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-status).name}"
        return f"signal {-status}"

    def stop(self, grace: float) -> None:
        """Asks the process to end, and ends it and its group after ``grace`` seconds at the latest."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        self.kill()

    def kill(self) -> None:
        """Ends the process and its group, at once, and closes everything. Safe to call twice and from any thread."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._kill_group()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the system itself may hold it, as for a lost disk
                self._process.wait(5)
            self.close()
            os.close(self._lifeline)
            self._drainer.join(1)

    def _kill_group(self) -> None:
        with self._ending:
            if self._killed:  # its number may belong to another group by now
                return
            self._killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: no permission to signal the dead
                os.killpg(self.pid, signal.SIGKILL)

    def _there(self) -> bool:
        return self.alive

    def _drain(self, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := pipe.read(1 << 16):
                self._tail = (self._tail + chunk)[-_TAIL:]
                self._printed += len(chunk)
                if self._printed > self._limit:
                    self.flooded = True
                    self._kill_group()


def connect() -> Channel:
    """The child's end of the connection; to be called once, in the main thread, before anything else is done."""
    given = json.loads(os.environ.pop(_GIVEN))
    del os.environ["PYTHONPATH"]
    if given["PYTHONPATH"] is not None:
        os.environ["PYTHONPATH"] = given["PYTHONPATH"]
    for number in (given["socket"], given["lifeline"]):
        os.set_inheritable(number, False)
    _die_with_parent(given["lifeline"])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    return Channel(socket.socket(fileno=given["socket"]))


def _die_with_parent(held: int) -> None:
    """Kills this process group as soon as the write end of the pipe ``held``, which only the parent has, is closed."""
    if sys.platform == "linux":
        # The kernel sends the signal and its default action ends a process: no line of Python has to run.
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO})
        fcntl.fcntl(held, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(held, fcntl.F_SETFL, fcntl.fcntl(held, fcntl.F_GETFL) | os.O_ASYNC)
        poller = select.poll()
        poller.register(held, 0)
        if poller.poll(0):  # the parent died before the signal was asked for
            os.killpg(0, signal.SIGKILL)
    else:
        # Elsewhere SIGIO is ignored by default; a process that waits costs little, and its parent reaps it.
        subprocess.Popen(["/bin/sh", "-c", "read _; kill -KILL 0"], stdin=held)
