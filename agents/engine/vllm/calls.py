"""Calls of vLLM with a deadline.

Invariant: all calls are made in one thread, which lives as long as the process, so that a call that never returns holds
up nobody but itself; after a call that failed or hung no other is made, because vLLM may spin from then on.
"""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from agents.text.errors import EngineError

T = TypeVar("T")


class Calls:
    """``calls(function, …)`` returns what the function returns. Raises EngineError after ``patience`` seconds, and for
    whatever the function raises."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.failed: str | None = None
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        Thread(target=self._serve, name="vllm", daemon=True).start()

    def __call__(self, function: Callable[..., T], *arguments: Any, patience: float | None = None) -> T:
        if self.failed is not None:
            raise EngineError(self.failed)
        future: Future[T] = Future()
        self._queue.put((future, lambda: function(*arguments)))
        seconds = patience or self.patience
        try:
            return future.result(seconds)
        except Exception as error:
            if isinstance(error, TimeoutError) and not future.done():
                raise self.fail(f"vLLM has not answered for {seconds:g} s") from None
            lines = str(error).strip().splitlines() or [""]
            raise self.fail(f"vLLM failed ({type(error).__name__}: {lines[0]})") from error

    def fail(self, why: str) -> EngineError:
        """The error that ends the engine; further calls raise it again."""
        self.failed = f"{why}: the engine cannot go on; --engine hf plays the same model"
        return EngineError(self.failed)

    def _serve(self) -> None:
        while True:
            future, call = self._queue.get()
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
