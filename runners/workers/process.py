"""Workers in processes of their own, each with its own copy of the base weights and its own environments.

Invariant: a portion that was being played when its worker was lost is played again, from the beginning and with the
same policy, by a worker that was started anew.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from agent_envs.isolation.child import Child
from agents.rollout.play import Played
from runners.command_line.errors import UserError
from runners.workers.base import PlaySpec, StaleWorker, WorkerLost, check_sum
from runners.workers.serve import WorkerSetup

_TRIES = 3
_GRACE = 60.0
"""Seconds that a worker may be silent beyond the time after which it reports a standstill itself."""

_Work = tuple[PlaySpec, int, Callable[[], None] | None, "Future[Played]"]


class ProcessWorkers:
    """See :class:`runners.workers.base.Workers`. ``count`` processes take portions from one queue."""

    def __init__(self, setup: WorkerSetup, count: int) -> None:
        self._setup, self.count = setup, count
        self._patience = setup.play.faults.stall_seconds + _GRACE
        self._policy: tuple[int, bytes, str] | None = None
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = Lock()
        self._closed = False
        self._slots = [_Slot() for _ in range(count)]
        self._threads = [Thread(target=self._serve, args=(slot,), daemon=True) for slot in self._slots]

    def start(self) -> str:
        for slot in self._slots:
            self._launch(slot)
        described = ""
        for slot in self._slots:
            described = self._answer(slot)
        for thread in self._threads:
            thread.start()
        return f"{described}, in each of {self.count} processes"

    def load(self, version: int, adapter: bytes, sha256: str) -> None:
        check_sum(adapter, sha256)
        # Each worker loads it before it next plays; one that was started anew in the meantime does so too.
        self._policy = (version, adapter, sha256)

    def submit(self, spec: PlaySpec, version: int, on_end: Callable[[], None] | None = None) -> Future[Played]:
        future: Future[Played] = Future()
        self._queue.put((spec, version, on_end, future))
        return future

    def kill(self, worker: int) -> None:
        child = self._slots[worker].child
        if child is not None:
            child.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for slot in self._slots:
                if slot.child is not None:
                    slot.child.kill()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    # -- one worker, in its thread -------------------------------------------------------------------------------

    def _serve(self, slot: _Slot) -> None:
        while (work := self._queue.get()) is not None:
            spec, version, on_end, future = work
            try:
                future.set_result(self._play(slot, spec, version, on_end))
            except Exception as error:
                future.set_exception(error)

    def _play(self, slot: _Slot, spec: PlaySpec, version: int, on_end: Callable[[], None] | None) -> Played:
        last = ""
        for _ in range(_TRIES):
            policy = self._policy
            try:
                if slot.child is None:
                    self._launch(slot)
                    self._answer(slot)
                if policy is not None and slot.version != policy[0]:
                    self._ask(slot, "load", *policy)
                    slot.version = policy[0]
                return self._ask(slot, "play", spec, version, on_end=on_end)
            except (EOFError, TimeoutError) as error:
                if self._closed:
                    raise WorkerLost("the workers were closed") from None
                last = self._bury(slot, error)
        raise WorkerLost(f"a rollout worker was lost {_TRIES} times over the same episodes: {last}")

    def _launch(self, slot: _Slot) -> None:
        with self._lock:
            if self._closed:
                raise EOFError
            slot.child, slot.version = Child("runners.workers.serve"), None
        slot.child.send_bytes(pickle.dumps(self._setup), self._patience)

    def _ask(self, slot: _Slot, *message: Any, on_end: Callable[[], None] | None = None) -> Any:
        assert slot.child is not None
        slot.child.send_bytes(pickle.dumps(message), self._patience)
        return self._answer(slot, on_end)

    def _answer(self, slot: _Slot, on_end: Callable[[], None] | None = None) -> Any:
        """What the worker answers. Raises EOFError or TimeoutError when it is lost."""
        assert slot.child is not None
        while True:
            kind, value = pickle.loads(slot.child.recv_bytes(self._patience))
            if kind == "done":
                return value
            if kind == "stale":
                raise StaleWorker(value)
            if kind == "refused":
                raise UserError(value)
            if on_end:
                on_end()

    def _bury(self, slot: _Slot, error: Exception) -> str:
        """Ends a lost worker and says in one line what became of it."""
        child, slot.child = slot.child, None
        if child is None:
            return "it could not be started"
        how = f"it said nothing for {self._patience:g} s" if isinstance(error, TimeoutError) else child.ending(2.0)
        child.kill()
        lines = child.tail().strip().splitlines()
        return f"{how}; last it said: {lines[-1]}" if lines else how


class _Slot:
    """A worker's place: the process that sits there now and the policy that it loaded."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.version: int | None = None
