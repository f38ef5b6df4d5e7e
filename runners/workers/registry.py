"""Rollout backends by name. Imports no torch.

A backend of another package is a class like `Processes`, named by the entry-point group ``turnwise.workers``;
``--workers NAME:N`` takes N of its workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent_envs.plugins import Registry
from runners.workers.states import Tell, ignore

if TYPE_CHECKING:
    from runners.settings.ray_settings import RaySettings
    from runners.workers.base import Workers
    from runners.workers.serve import WorkerSetup
    from runners.workers.worker import Worker


@dataclass(frozen=True)
class WorkersOpening:
    """Everything that a backend may need to begin."""

    count: int
    """Workers that were asked for."""
    setup: WorkerSetup
    """What a worker of another process is made from; it can be pickled."""
    local: Callable[[], Worker]
    """Makes a worker in this process, on the trainer's own weights."""
    ray: RaySettings | None = None
    """Settings of the backend ``ray``."""
    tell: Tell = ignore
    """Is told what becomes of the workers."""


class Backend(Protocol):
    """How rollout workers are opened.

    It may have an attribute ``extra``: the extra of this package that installs what it needs, a package of the same
    name.
    """

    @staticmethod
    def open(opening: WorkersOpening) -> Workers:
        """Raises UserError, in one line, where it cannot begin."""


class Local:
    """The trainer's own process, on the trainer's weights."""

    @staticmethod
    def open(opening: WorkersOpening) -> Workers:
        from runners.workers.local import LocalWorkers

        return LocalWorkers(opening.local)


class Processes:
    """Processes on this machine, each with its own copy of the base weights."""

    @staticmethod
    def open(opening: WorkersOpening) -> Workers:
        from runners.workers.process import ProcessWorkers

        return ProcessWorkers(opening.setup, opening.count, tell=opening.tell)


class Ray:
    """Actors of a Ray cluster, on one machine or several (--ray.…)."""

    extra = "ray"

    @staticmethod
    def open(opening: WorkersOpening) -> Workers:
        from runners.workers.ray_cluster import RayWorkers

        assert opening.ray is not None
        return RayWorkers(opening.setup, opening.count, opening.ray, opening.tell)


def check_backend(part: Any, who: str) -> None:
    """Raises ValueError unless ``part`` has ``open``."""
    if not callable(getattr(part, "open", None)):
        raise ValueError(f"{who} has no open(opening)")


WORKERS: Registry[Backend] = Registry(
    kind="rollout backend",
    group="turnwise.workers",
    builtin={
        "local": "runners.workers.registry:Local",
        "process": "runners.workers.registry:Processes",
        "ray": "runners.workers.registry:Ray",
    },
    check=check_backend,
)
