"""One container of the docker backend, and the stream over which it is spoken to.

Invariants:

- Every call ends by its deadline; more bytes than were allowed are not read.
- A container ends when its connection does, however this process ends, and the engine removes it.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
from time import monotonic, time
from typing import Any

from agent_envs.code.sandbox import bundle
from agent_envs.code.sandbox.interface import Limits

_FRAME = struct.Struct("!BxxxL")
_LENGTH = struct.Struct("!Q")
_STDOUT = 1
_OWN_PROCESSES = 4
_START = 30.0
_TELLING = 2.0
"""Seconds in which the engine hears what the kernel did."""
_FIRST_USER, _USERS = 20_000, 40_000
"""Each container's programs are a user of their own: a user's processes are counted over all containers."""


class Broken(Exception):  # noqa: N818
    """The container does not answer as it must; it is of no more use."""


class Container:
    """A warm interpreter in a container without a network, a writable root or capabilities a program could use."""

    def __init__(self, client: Any, image: str, limits: Limits, label: str) -> None:
        self._client = client
        self._buffer = bytearray()
        self._said = b""
        self._frame = (0, 0)
        self._memory = limits.memory_mb << 20
        made = client.api.create_container(
            image,
            command=["python3", *bundle.OPTIONS, "0"],
            user="0:0",
            stdin_open=True,
            working_dir="/work",
            environment=bundle.ENVIRONMENT,
            labels={"turnwise": label},
            network_disabled=True,
            host_config=client.api.create_host_config(**_host_config(limits)),
        )
        self.id: str = made["Id"]
        try:
            stream = client.api.attach_socket(self.id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            self._stream = stream
            self._socket: socket.socket = getattr(stream, "_sock", stream)
            client.api.start(self.id)
            self._send(
                bundle.message("container", {"user": _FIRST_USER + secrets.randbelow(_USERS)}), monotonic() + _START
            )
            self._receive(monotonic() + _START, 1 << 16)
        except BaseException:
            self.remove()
            raise

    def limit_memory(self, memory: int) -> None:
        """Sets the bytes that all processes and files of the container may have together. Raises Broken."""
        if memory != self._memory:
            try:
                self._client.api.update_container(self.id, mem_limit=memory, memswap_limit=memory)
            except Exception as error:
                raise Broken(f"its memory cannot be limited: {error}") from error
            self._memory = memory

    def ask(self, message: bytes, seconds: float, most: int) -> bytes:
        """Sends one message and returns the answer of at most ``most`` bytes. Raises Broken."""
        deadline = monotonic() + seconds
        self._send(_LENGTH.pack(len(message)) + message, deadline)
        return self._receive(deadline, most)

    def spent_memory(self, since: float) -> bool:
        """Whether the engine saw its memory spent after ``since`` (`time.time`): so a program can end all of it."""
        deadline = monotonic() + _TELLING
        while monotonic() < deadline:
            try:
                found = self._client.api.events(
                    since=int(since), until=int(time()) + 1, filters={"container": self.id, "event": "oom"}, decode=True
                )
                if any(found):
                    return True
            except Exception:  # the engine does not answer: then nobody knows
                return False
        return False

    def remove(self) -> None:
        """Kills the container and takes it away; one that is gone already is left alone."""
        with contextlib.suppress(Exception):  # whatever the engine answers: it may have removed it itself
            self._client.api.remove_container(self.id, force=True, v=True)
        if hasattr(self, "_stream"):
            with contextlib.suppress(OSError):
                self._socket.close()
            self._stream.close()

    def _send(self, data: bytes, deadline: float) -> None:
        self._socket.settimeout(max(0.01, deadline - monotonic()))
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Broken(self._why(error)) from error

    def _receive(self, deadline: float, most: int) -> bytes:
        size = _LENGTH.unpack(self._take(_LENGTH.size, deadline))[0]
        if size > most:
            raise Broken(f"an answer of {size} bytes, where {most} are allowed")
        return self._take(size, deadline)

    def _take(self, size: int, deadline: float) -> bytes:
        """``size`` bytes of its standard output; the engine sends both outputs in frames over one stream."""
        while len(self._buffer) < size:
            kind, left = self._frame
            if left == 0:
                kind, left = _FRAME.unpack(self._exactly(_FRAME.size, deadline))
            data = self._exactly(min(left, 1 << 16), deadline)
            self._frame = (kind, left - len(data))
            if kind == _STDOUT:
                self._buffer += data
            else:
                self._said = (self._said + data)[-4096:]
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _exactly(self, size: int, deadline: float) -> bytes:
        data = b""
        while len(data) < size:
            self._socket.settimeout(max(0.01, deadline - monotonic()))
            try:
                chunk = self._socket.recv(size - len(data))
            except OSError as error:
                raise Broken(self._why(error)) from error
            if not chunk:
                raise Broken(self._why("it ended"))
            data += chunk
        return data

    def _why(self, error: object) -> str:
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return f"{error}: {lines[-1][:300]}" if lines else str(error)


def _host_config(limits: Limits) -> dict[str, Any]:
    memory = limits.memory_mb << 20
    folder = f"size={limits.disk_mb << 20},nr_inodes={limits.inodes + 8},mode=1777,nosuid,nodev"
    return {
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        # The supervisor's: it gives the program another user, and ends what that one leaves.
        "cap_add": ["SETUID", "SETGID", "KILL"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": memory,
        "memswap_limit": memory,
        "pids_limit": limits.processes + _OWN_PROCESSES,
        "ipc_mode": "private",
        # Empty in place of the engine's: terminals and queues are memory of the kernel that no limit counts.
        "tmpfs": {
            **dict.fromkeys(("/dev/pts", "/dev/mqueue"), "ro,size=4k,mode=0755"),
            "/work": f"{folder},exec",
            "/tmp": f"{folder},exec",
            "/dev/shm": folder,
        },
        "ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "auto_remove": True,
    }
