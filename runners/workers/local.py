"""The worker in the trainer's process, which shares the base weights."""

from collections.abc import Callable
from concurrent.futures import Future

from agents.rollout.play import Played
from runners.workers.base import PlaySpec
from runners.workers.worker import Worker


class LocalWorkers:
    """See :class:`runners.workers.base.Workers`. A future is done when ``submit`` returns it."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._worker = make()

    def start(self) -> str:
        return f"{self._worker.engine.describe()}, in this process"

    def load(self, version: int, adapter: bytes, sha256: str) -> None:
        self._worker.load(version, adapter, sha256)

    def submit(self, spec: PlaySpec, version: int, on_end: Callable[[], None] | None = None) -> Future[Played]:
        future: Future[Played] = Future()
        try:
            future.set_result(self._worker.play(spec, version, on_end))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        self._worker.close()
