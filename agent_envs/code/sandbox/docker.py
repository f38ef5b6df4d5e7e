"""The docker backend: warm containers, thrown away as soon as a run was not clean.

Invariants:

- A container serves one run at a time, and another one only after a run that ended by itself, left no process and was
  heard in full.
- All containers of a sandbox bear its label and are gone when it is closed.

Takes the extra ``docker``, an engine, and an image (``scripts/docker_image.sh`` makes one).
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from time import time
from typing import Any

from agent_envs.code.sandbox.container import Broken, Container
from agent_envs.code.sandbox.interface import (
    Capabilities,
    Limits,
    RunResult,
    SandboxFault,
    SandboxJob,
    SandboxUnavailable,
    Status,
)
from agent_envs.code.sandbox.pooled import PooledSandbox
from agent_envs.code.sandbox.results import message_of, most_bytes, out_of_memory, result_of

IMAGE = "turnwise-sandbox:latest"
_GRACE = 15.0
_YOUNG = 60.0
"""Seconds in which a container may be made and not started yet."""
_CLEAN = (Status.OK, Status.ERROR)
_FIXED = ("processes", "disk_mb", "inodes")
"""Limits that a container is made with: a run cannot ask for more of them."""

CAPABILITIES = Capabilities(
    backend="docker",
    files="container: a read-only image and the run's own folders",
    network="container without a network; no sockets",
    processes="container, and its limit of processes",
    memory="control group of the container: all processes and files of a run together",
    disk="tmpfs of limited size and number of files for each folder, within the memory",
    signals="container; another user than the supervisor's",
    syscalls="seccomp: only listed system calls, below the engine's own list",
    total_memory=True,
    exceptions=("a run that asks for less disk or fewer files than the sandbox was opened with may use that much",),
)


class DockerSandbox(PooledSandbox):
    """Runs jobs in containers. Raises SandboxUnavailable without the library, an engine or the image."""

    capabilities = CAPABILITIES

    def __init__(self, *, image: str = IMAGE, limits: Limits | None = None, workers: int = 2) -> None:
        super().__init__(limits, workers)
        self._image = image
        self._client = _client(image)
        self._label = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._closed = False
        self._all: set[Container] = set()
        self._ready: queue.LifoQueue[Future[Container]] = queue.LifoQueue()
        self._makers = ThreadPoolExecutor(2, "container")
        sweep(self._client)
        try:
            first = self._make()
        except Exception as error:
            self._client.close()
            reason = f"the engine does not start a container of {image} ({' '.join(str(error).split())[:300]})"
            raise SandboxUnavailable(reason, "make the image anew with scripts/docker_image.sh") from error
        self._put(first)
        for _ in range(workers):  # one more than can be used: a replacement takes longer than a run
            self._replace()

    def close(self) -> None:
        """Removes all containers. Safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._makers.shutdown(wait=True)
        for container in list(self._all):
            container.remove()
        self._client.close()

    def _run(self, job: SandboxJob) -> RunResult:
        for name in _FIXED:
            if getattr(job.limits, name) > getattr(self._limits, name):
                most = getattr(self._limits, name)
                raise ValueError(f"{name} must be at most {most}, which these containers were made with")
        message = message_of(job, self.capabilities)
        with self._lock:
            if self._closed:
                raise RuntimeError("this sandbox is closed")
        try:
            container = self._ready.get().result()
        except Exception as error:
            self._replace()
            raise SandboxFault(f"the engine does not make a container: {error}") from error
        clean, began = False, time()
        try:
            container.limit_memory(job.limits.memory_mb << 20)
            result = result_of(container.ask(message, job.limits.seconds + _GRACE, most_bytes(job)), job)
            clean = result.status in _CLEAN and not result.stray
            return result
        except Broken as error:
            if container.spent_memory(began):  # a program may choose that its container's first process goes
                return out_of_memory()
            raise SandboxFault(f"the container did not answer as it must ({error})") from error
        finally:
            if clean:
                self._put(container)
            else:
                self._discard(container)

    def _put(self, container: Container) -> None:
        done: Future[Container] = Future()
        done.set_result(container)
        self._ready.put(done)

    def _discard(self, container: Container) -> None:
        def remove() -> None:
            container.remove()
            self._all.discard(container)

        with self._lock:
            if self._closed:
                return  # close removes it
            self._makers.submit(remove)
        self._replace()

    def _replace(self) -> None:
        with self._lock:
            if not self._closed:
                self._ready.put(self._makers.submit(self._make))

    def _make(self) -> Container:
        container = Container(self._client, self._image, self._limits, self._label)
        self._all.add(container)
        return container


def sweep(client: Any) -> None:
    """Removes containers that were made and never started, as where the process that made them was killed between.

    One that was started ends with its connection, and the engine removes it.
    """
    filters = {"label": "turnwise", "status": "created"}
    with contextlib.suppress(Exception):  # they are in nobody's way
        for container in client.api.containers(all=True, filters=filters):
            if time() - container["Created"] > _YOUNG:
                client.api.remove_container(container["Id"], force=True, v=True)


def _client(image: str) -> Any:
    try:
        import docker
    except ImportError as error:
        raise SandboxUnavailable("the docker library is not installed", "pip install 'turnwise[docker]'") from error
    try:
        _knock(docker.utils.parse_host(os.environ.get("DOCKER_HOST")))
        client = docker.from_env(timeout=60)
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(
            f"no docker engine answers ({_short(error)})", "start one (dockerd), or set DOCKER_HOST to one that runs"
        ) from error
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound as error:
        client.close()
        remedy = "make it with scripts/docker_image.sh"
        raise SandboxUnavailable(f"the docker engine has no image {image}", remedy) from error
    except docker.errors.DockerException as error:
        client.close()
        raise SandboxUnavailable(f"the docker engine fails ({_short(error)})", "see its log") from error
    return client


def _knock(address: str) -> None:
    """Raises OSError when nobody is there: the library leaves its socket open when it finds nobody at a path."""
    if address.startswith("http+unix://"):
        with socket.socket(socket.AF_UNIX) as trial:
            trial.settimeout(10)
            trial.connect(address.removeprefix("http+unix://"))


def _short(error: Exception) -> str:
    """The innermost cause: the library wraps it several times."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "…"
