"""The protocol of a rollout backend.

Invariants: a worker plays a portion only with the policy version that was asked for; a worker that was started again
has none, so it plays nothing before it has loaded one. A portion's episodes are bit-identical on every backend, because
it is played as a whole by one engine: how many workers there are never shows.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from agents.engine import SamplingSettings
from agents.rollout.forking.settings import ForkPlan
from agents.rollout.play import Played
from agents.rollout.quota import Quota
from agents.rollout.search.settings import SearchPlan
from agents.tree.episode import Job

BASE_MODEL = b""
"""The policy without an adapter."""


@dataclass(frozen=True)
class PlaySpec:
    """A portion of work: jobs that one engine plays side by side."""

    jobs: tuple[Job, ...]
    sampling: SamplingSettings
    plan: ForkPlan | None = None
    """How the jobs of each task branch; None: each job is an episode that begins at the root."""
    search: SearchPlan | None = None
    """How the tasks are searched; every job is then a search."""
    quota: Quota | None = None
    """How many groups are needed; None: every job is played to its end."""


class WorkerLost(RuntimeError):  # noqa: N818
    """A worker's process ended, or did not answer, more often than is allowed."""


class StaleWorker(RuntimeError):  # noqa: N818
    """The worker has another policy version than the one asked for."""


class Workers(Protocol):
    """Plays portions of episodes."""

    def start(self) -> str:
        """Makes every worker ready. Returns one line about how the policy is run; raises what the user can fix."""

    def load(self, version: int, adapter: bytes, sha256: str) -> None:
        """Gives every worker a policy: safetensors bytes of an adapter, or BASE_MODEL.

        Raises ValueError when the bytes have another hash.
        """

    def submit(self, spec: PlaySpec, version: int, on_end: Callable[[], None] | None = None) -> Future[Played]:
        """Plays a portion with exactly this version; the future raises StaleWorker where there is another one.

        The policy is the one that is loaded now, also where another is loaded before the portion's turn comes.

        ``on_end`` is called, from any thread, as episodes end; again for those that a lost worker has to play again.
        """

    def close(self) -> None:
        """Ends all workers and all that they started. Safe to call twice."""


def check_sum(adapter: bytes, sha256: str) -> None:
    """Raises ValueError when the bytes are not those that were sent."""
    result = hashlib.sha256(adapter).hexdigest()
    if result != sha256:
        raise ValueError(f"the adapter was damaged on its way: its sha256 is {result[:12]}…, not {sha256[:12]}…")
