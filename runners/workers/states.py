"""What becomes of rollout workers, and the record of it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock

WORKER_LOG = "workers.jsonl"
"""The record in a run folder."""


class WorkerState(StrEnum):
    """What a worker can do now."""

    STARTING = "starting"
    """Its process is being made, for the first time or again."""
    STALE = "stale"
    """It runs and has no policy yet."""
    HEALTHY = "healthy"
    """It plays, or waits for work, with a policy."""
    SUSPECT = "suspect"
    """No episode of it has ended for long; if that goes on, it is taken for dead."""
    DEAD = "dead"
    """Its process ended, or was killed for its silence."""
    RETIRED = "retired"
    """It was ended because its work was done."""


@dataclass(frozen=True)
class WorkerEvent:
    """A worker, by its number from 0, came into a state."""

    worker: int
    state: WorkerState
    why: str = ""


Tell = Callable[[WorkerEvent], None]
"""Is told of events, from any thread."""


def ignore(event: WorkerEvent) -> None:
    """Tells nobody."""


class WorkerLog:
    """A file with a line for every event; there is none before the first. A run that is resumed goes on with it.

    ``update``: the number of updates done.
    """

    def __init__(self, path: Path, update: Callable[[], int]) -> None:
        self.path, self._update, self._lock = path, update, Lock()

    def __call__(self, event: WorkerEvent) -> None:
        entry = {"time": round(time.time(), 3), "update": self._update(), "worker": event.worker, "state": event.state}
        line = json.dumps(entry | ({"why": event.why} if event.why else {}), ensure_ascii=True)
        with self._lock, self.path.open("a", encoding="ascii") as file:
            file.write(f"{line}\n")
