"""The threads in which environments reset and step.

Environments of one process wait for each other: they have one thread together, which lets the process begin on every
call that waits before it takes the first answer. All others, which may wait for anything, have a pool.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any


@dataclass(frozen=True)
class EnvCall:
    """What is to be done with an environment."""

    do: Callable[[], Any]
    future: Future[Any]
    begin: Callable[[], None] | None
    """Has the process of the environment begin on it."""


class EnvCalls:
    """Does calls in ``threads`` threads, or in that of their environment's process."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._queues: dict[object, SimpleQueue[EnvCall | None]] = {}
        self._closed = Event()

    def submit(
        self, process: object | None, begin: Callable[[], None] | None, call: Callable[..., Any], *arguments: Any
    ) -> Future[Any]:
        """The future of ``call(*arguments)``. ``process``: that of its environment, None for the pool."""
        if process is None:
            return self._pool.submit(call, *arguments)
        if process not in self._queues:
            queue: SimpleQueue[EnvCall | None] = SimpleQueue()
            self._queues[process] = queue
            Thread(target=self._serve, args=[queue], name="environments", daemon=True).start()
        future: Future[Any] = Future()
        self._queues[process].put(EnvCall(partial(call, *arguments), future, begin))
        return future

    def close(self) -> None:
        """Cancels what was not begun, and waits for nothing: an environment may hang."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for queue in self._queues.values():
            queue.put(None)

    def _serve(self, queue: SimpleQueue[EnvCall | None]) -> None:
        while True:
            calls = [queue.get()]
            with suppress(Empty):
                while True:
                    calls.append(queue.get_nowait())
            for call in calls:
                if call is not None and call.begin is not None and not self._closed.is_set():
                    with suppress(Exception):  # what is wrong shows again in the call itself
                        call.begin()
            for call in calls:
                if call is None:
                    return
                self._do(call)
            del calls, call  # nothing is held while it waits

    def _do(self, call: EnvCall) -> None:
        if self._closed.is_set():
            call.future.cancel()
        elif call.future.set_running_or_notify_cancel():
            try:
                call.future.set_result(call.do())
            except BaseException as error:
                call.future.set_exception(error)
