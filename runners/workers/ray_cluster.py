"""Rollout workers on Ray: the protocol of `process`, with processes that actors start on the nodes of a cluster.

Invariants:

- A portion, a lost worker and a policy are treated as by `ProcessWorkers`. Ray places processes, notices their death
  and carries bytes. It restarts no actor and repeats no call: a worker that was lost is replaced by a new actor, which
  has no policy until it has loaded the requested one.
- A cluster that was started here listens on loopback, with a token that no file holds. At its end, and at that of this
  process however it comes, its processes and its folder are removed.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from packaging.version import Version

from agent_envs.isolation.faults import one_line
from runners.command_line.errors import UserError
from runners.settings.ray_settings import RaySettings
from runners.workers import ray_guard
from runners.workers.base import WorkerLost
from runners.workers.process import SERVE, ProcessWorkers
from runners.workers.ray_actor import WorkerActor
from runners.workers.serve import WorkerSetup
from runners.workers.states import Tell, ignore

OLDEST = "2.60"
"""The first version of Ray that the tests were run with."""
_ROOM = 120.0
"""Seconds within which a new actor has to find a place and start."""
_GRACE = 30.0
"""Seconds that an answer may take on its way, beyond the time that the actor waits for it."""
_ANSWERS = 10.0
"""Seconds within which a cluster that is joined has to answer at all."""
_INLINE = 100_000
"""Bytes from which a message goes through the object store, where the actors of a node share it."""
_PATH = 30
"""Characters of a temporary folder's path: Ray's sockets lie deep below it, and their paths have 107."""


class RayWorkers(ProcessWorkers):
    """See :class:`runners.workers.base.Workers`. A portion is played by whichever of ``count`` actors is free."""

    def __init__(self, setup: WorkerSetup, count: int, settings: RaySettings, tell: Tell = ignore) -> None:
        self._cluster = RayCluster(settings, count)
        super().__init__(setup, count, self._cluster.spawn, tell)

    def start(self) -> str:
        self._cluster.open()
        try:
            described = super().start()
        except WorkerLost as error:
            raise UserError(str(error)) from None
        return f"{described}, {self._cluster.describe()}"

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._cluster.close()


class RayCluster:
    """The connection of this process to a cluster: one that it joins, or one that it starts for ``count`` workers."""

    def __init__(self, settings: RaySettings, count: int) -> None:
        self.settings, self._count = settings, count
        self._open = False
        self._folder = ""
        self._guard: subprocess.Popen[bytes] | None = None
        self._about: set[tuple[str, str, str]] = set()
        """(version of Ray, version of Python, node) of the actors."""
        self._lock = Lock()
        self._shared: tuple[bytes, Any] = (b"", None)
        """The newest large message, and its place in the object store."""

    # -- its beginning and its end ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Joins or starts the cluster. Raises UserError."""
        if self.settings.address:
            self._join()
        else:
            self._start()
        self.check_room()

    def check_room(self) -> None:
        """Raises UserError where the whole cluster is too small for the workers."""
        has = self._ray.cluster_resources()
        for name, each in (("CPU", self.settings.cpus), ("GPU", self.settings.gpus)):
            if each * self._count > has.get(name, 0.0) + 1e-6:
                raise UserError(
                    f"--workers ray:{self._count} with --ray.{name.lower()}s {each:g} needs {each * self._count:g} "
                    f"{name}s, and the cluster has {has.get(name, 0.0):g}: lower one of them"
                )

    def _join(self) -> None:
        try:
            socket.create_connection(self.settings.place, _ANSWERS).close()
        except OSError as error:  # Ray would try again for many minutes
            raise UserError(f"nobody answers at --ray.address {self.settings.address}: {error}") from None
        # A cluster without a token lets anybody in who reaches its port: that has to be asked for.
        with _environment({"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token")}):
            try:
                self._init(address=self.settings.address)
            except UserError:
                raise
            except Exception as error:  # what Ray raises has many types
                raise UserError(
                    f"cannot join the Ray cluster at {self.settings.address}: {one_line(error, 300)}; on one of its "
                    "machines, set RAY_AUTH_TOKEN, or RAY_AUTH_MODE=disabled for a cluster without a token"
                ) from None

    def _start(self) -> None:
        if "ray" in sys.modules and not token.cache_info().currsize:  # it read its environment then
            raise UserError("Ray was imported before it could be told to listen on loopback, with a token of this run")
        place = tempfile.gettempdir()
        self._folder = tempfile.mkdtemp(prefix="turnwise-ray-", dir=place if len(place) < _PATH else "/tmp")
        # In a session of its own no Ctrl-C reaches it, and none of the descriptors here but its input.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", ray_guard.__file__, self._folder], stdin=subprocess.PIPE, start_new_session=True
        )
        variables = {
            ray_guard.MARK: self._folder,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token(),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # its word for: listen on loopback only
        }
        with _environment(variables):
            try:
                self._init(
                    address="local",
                    num_cpus=max(1, math.ceil(self._count * self.settings.cpus)),
                    include_dashboard=False,
                    _temp_dir=self._folder,
                )
            except UserError:
                raise
            except Exception as error:
                raise UserError(f"Ray cannot start here: {one_line(error, 300)}") from None

    def _init(self, **options: Any) -> None:
        self._ray = _imported()
        with _signals_kept():
            self._ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)
        self._open = True

    def close(self) -> None:
        """Leaves the cluster, and ends one that was started here. Safe to call twice."""
        if self._open:
            self._open = False
            self._ray.shutdown(wait_for_processes=True)
        guard, self._guard = self._guard, None
        if guard is not None:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()

    def describe(self) -> str:
        """Where the workers are, and which versions run on both sides."""
        nodes = len({node for _, _, node in self._about})
        there = " and ".join(sorted({f"Ray {ray} and Python {python}" for ray, python, _ in self._about}))
        here = f"Ray {self._ray.__version__} and Python {platform.python_version()}"
        where = f"the Ray cluster at {self.settings.address}" if self.settings.address else "a Ray cluster of this run"
        return f"on {nodes} node{'s' if nodes > 1 else ''} of {where}; {there} there, {here} here"

    # -- its processes ---------------------------------------------------------------------------------------------

    def spawn(self) -> RemoteProcess:
        """Starts a worker's process on a node with room. Raises WorkerLost when there is none in time, EOFError."""
        settings = self.settings
        remote = self._ray.remote(num_cpus=settings.cpus, num_gpus=settings.gpus, max_restarts=0, max_task_retries=0)
        process = RemoteProcess(self, remote(WorkerActor).options(scheduling_strategy="SPREAD").remote(SERVE))
        try:
            ray, python, node, process.pid = self.wait(process.actor.about.remote(), _ROOM)
        except TimeoutError:
            process.kill()
            raise WorkerLost(
                f"no node of the Ray cluster had room for a worker within {_ROOM:g} s: "
                f"it takes {settings.cpus:g} CPUs and {settings.gpus:g} GPUs"
            ) from None
        except EOFError:
            process.kill()
            raise
        self._about.add((ray, python, node))
        return process

    def wait(self, answer: Any, timeout: float | None) -> Any:
        """The answer of a call. Raises TimeoutError, or EOFError when the actor, its node or its process ended."""
        try:
            return self._ray.get(answer, timeout=timeout)
        except (EOFError, TimeoutError):  # the worker's own, or no answer
            raise
        except self._ray.exceptions.RayError as error:
            raise EOFError(f"a Ray actor was lost: {_sentence(error)}") from None

    def packed(self, message: bytes) -> Any:
        """The message as it goes into a call: a large one, such as a policy for all, is stored once."""
        if len(message) < _INLINE:
            return message
        with self._lock:
            if self._shared[0] is not message:
                self._shared = message, self._ray.put(message)
            return self._shared[1]

    def kill(self, actor: Any) -> None:
        if self._open:
            self._ray.kill(actor)


class RemoteProcess:
    """See :class:`runners.workers.process.Connection`."""

    pid = 0
    """Its number on its node."""

    def __init__(self, cluster: RayCluster, actor: Any) -> None:
        self._cluster, self.actor = cluster, actor
        self._waiting: deque[bytes] = deque()
        self._lost = ""

    def send_bytes(self, data: bytes, timeout: float | None = None) -> None:
        self._wait(self.actor.send.remote(self._cluster.packed(data)), timeout)

    def recv_bytes(self, timeout: float | None = None) -> bytes:
        if not self._waiting:
            self._waiting.extend(self._wait(self.actor.receive.remote(timeout), timeout))
        return self._waiting.popleft()

    def ending(self, grace: float = 0.0) -> str:
        return self._lost or self._last_words(grace)[0]

    def tail(self) -> str:
        return "" if self._lost else self._last_words(0.0)[1]

    def kill(self) -> None:
        self._cluster.kill(self.actor)

    def _wait(self, answer: Any, timeout: float | None) -> Any:
        return self._cluster.wait(answer, None if timeout is None else timeout + _GRACE)

    def _last_words(self, grace: float) -> tuple[str, str]:
        try:
            words: tuple[str, str] = self._wait(self.actor.last_words.remote(grace), grace)
        except (EOFError, TimeoutError) as error:
            self._lost = str(error) or "its Ray actor does not answer"
            return self._lost, ""
        return words


@cache
def token() -> str:
    """The token of the clusters that this process starts: Ray reads it once, when it is imported."""
    return secrets.token_hex(32)


def _imported() -> Any:
    """Ray. Raises UserError for a version before `OLDEST`."""
    import ray

    if Version(ray.__version__) < Version(OLDEST):
        raise UserError(
            f"--workers ray:N was tested with Ray {OLDEST} and later, and {ray.__version__} is installed: "
            "pip install 'turnwise[ray]'"
        )
    return ray


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables are set inside; what is started there keeps them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _signals_kept() -> Iterator[None]:
    """SIGTERM keeps its handler: Ray gives it one that ends the process. One that came inside comes again after it."""
    before = signal.getsignal(signal.SIGTERM)
    came = False
    try:
        yield
    except SystemExit:
        came = True
    finally:
        signal.signal(signal.SIGTERM, before)
    if came:
        signal.raise_signal(signal.SIGTERM)


def _sentence(error: BaseException) -> str:
    """What Ray has to say, which may be a page: the first sentence of its last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].split(". ")[0][:300] if lines else type(error).__name__
