"""The base of all backends: several workers, each of which carries out one job at a time.

Invariant: a backend writes how one job is carried out (`_run`), by any thread, and how everything ends (`close`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from agent_envs.code.sandbox.interface import Limits, RunResult, SandboxJob


class PooledSandbox(ABC):
    """At most ``workers`` jobs of `run_many` are carried out at a time; ``limits`` are those of runs without others."""

    def __init__(self, limits: Limits | None, workers: int) -> None:
        self._limits, self._workers = limits or Limits(), workers

    def run(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes] | None = None,
        *,
        stdin: bytes = b"",
        limits: Limits | None = None,
    ) -> RunResult:
        """Runs one command in a folder that holds ``files``. Raises SandboxFault, and ValueError for a bad job."""
        return self._run(SandboxJob(tuple(argv), dict(files or {}), stdin, limits or self._limits))

    def run_many(self, jobs: Sequence[SandboxJob]) -> list[RunResult]:
        """Runs several, as many at a time as there are workers; results in the order of the jobs."""
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(self._run, jobs))

    @abstractmethod
    def close(self) -> None:
        """Ends all runs and leaves nothing behind. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _run(self, job: SandboxJob) -> RunResult: ...
