"""Workers in processes of their own, each with its own copy of the base weights and its own environments.

Invariant: a portion that was being played when its worker was lost is played again, from the beginning and with the
same policy, by a worker that was restarted.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, Protocol

from agent_envs.isolation.child import Child
from agents.rollout.play import Played
from runners.command_line.errors import UserError
from runners.workers.base import PlaySpec, StaleWorker, WorkerLost, check_sum
from runners.workers.serve import WorkerSetup
from runners.workers.states import Tell, WorkerEvent, WorkerState, ignore

_LOG = logging.getLogger(__name__)
SERVE = "runners.workers.serve"
_TRIES = 3
_SUSPECT = 0.25
"""Part of its patience after which a silent worker is suspected."""
_GRACE = 60.0
"""Seconds that a worker may be silent beyond the time after which it reports a standstill itself."""


class Connection(Protocol):
    """A process that runs `SERVE`, as `Child` has it."""

    def send_bytes(self, data: bytes, timeout: float | None = None) -> None:
        """Sends one message. Raises EOFError when nobody is there, TimeoutError after ``timeout`` seconds."""

    def recv_bytes(self, timeout: float | None = None) -> bytes:
        """The next message. Raises what `send_bytes` raises."""

    def ending(self, grace: float = 0.0) -> str:
        """How the process ended, in a few words."""

    def tail(self) -> str:
        """The last lines that it printed."""

    def kill(self) -> None:
        """Ends the process and all that it started. Safe to call twice."""


class ProcessWorkers:
    """See :class:`runners.workers.base.Workers`. A portion is played by whichever of ``count`` processes is free.

    ``spawn`` starts a process, on this machine or on another one. ``tell`` is told what becomes of the workers.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        count: int,
        spawn: Callable[[], Connection] | None = None,
        tell: Tell = ignore,
    ) -> None:
        self._setup, self.count, self._spawn, self._tell = setup, count, spawn or partial(Child, SERVE), tell
        self._patience = setup.play.faults.stall_seconds + _GRACE
        self._policy: _Policy | None = None
        self._lock = Lock()
        self._closed = False
        self._slots = [_Slot(number) for number in range(count)]
        self._free: SimpleQueue[_Slot] = SimpleQueue()
        self._threads = ThreadPoolExecutor(count)

    def start(self) -> str:
        described = last = ""
        for slot in self._slots:
            try:
                self._launch(slot)
            except EOFError as error:
                last = str(error)
        for slot in self._slots:
            try:
                if slot.child:
                    described = self._answer(slot)
                    self._mark(slot, WorkerState.STALE)
            except (EOFError, TimeoutError) as error:  # it is started again when it is needed
                last = self._bury(slot, error)
            self._free.put(slot)
        if not described:
            raise UserError(f"no rollout worker could be started: {last}")
        return f"{described}, in each of {self.count} processes"

    def load(self, version: int, adapter: bytes, sha256: str) -> None:
        check_sum(adapter, sha256)
        # Each worker loads it before it next plays; one that was restarted in the meantime does so too.
        self._policy = _Policy(version, sha256, pickle.dumps(("load", version, adapter, sha256)))

    def submit(self, spec: PlaySpec, version: int, on_end: Callable[[], None] | None = None) -> Future[Played]:
        return self._threads.submit(self._play, self._policy, spec, version, on_end)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for slot in self._slots:
                if slot.child is not None:
                    slot.child.kill()
                    self._mark(slot, WorkerState.RETIRED)
        self._threads.shutdown(cancel_futures=True)

    # -- one portion, in a thread of its own ---------------------------------------------------------------------

    def _play(self, policy: _Policy | None, spec: PlaySpec, version: int, on_end: Callable[[], None] | None) -> Played:
        slot = self._free.get()
        try:
            return self._play_in(slot, policy, spec, version, on_end)
        finally:
            self._free.put(slot)

    def _play_in(
        self,
        slot: _Slot,
        policy: _Policy | None,
        spec: PlaySpec,
        version: int,
        on_end: Callable[[], None] | None,
    ) -> Played:
        last, lost, unstarted = "", 0, 0
        while max(lost, unstarted) < _TRIES:
            starting = slot.child is None
            try:
                if starting:
                    self._launch(slot)
                    self._answer(slot)
                    self._mark(slot, WorkerState.STALE)
                    starting, unstarted = False, 0
                if policy is not None and slot.loaded != (policy.version, policy.sha256):
                    self._ask(slot, policy.message)
                    slot.loaded = policy.version, policy.sha256
                    self._mark(slot, WorkerState.HEALTHY)
                return self._ask(slot, pickle.dumps(("play", spec, version)), on_end)
            except (EOFError, TimeoutError) as error:
                if self._closed:
                    raise WorkerLost("the workers were closed") from None
                # A start that fails says nothing of the episodes: a lost node may take several with it.
                if starting:
                    unstarted += 1
                else:
                    lost += 1
                last = self._bury(slot, error)
                _LOG.warning("a rollout worker was lost (%s): its %d jobs are played again", last, len(spec.jobs))
        if unstarted == _TRIES:
            raise WorkerLost(f"a rollout worker could not be started {_TRIES} times in a row: {last}")
        raise WorkerLost(f"a rollout worker was lost {_TRIES} times over the same episodes: {last}")

    def _launch(self, slot: _Slot) -> None:
        with self._lock:
            if self._closed:
                raise EOFError
            self._mark(slot, WorkerState.STARTING)
            slot.child, slot.loaded = self._spawn(), None
        slot.child.send_bytes(pickle.dumps(self._setup), self._patience)

    def _ask(self, slot: _Slot, message: bytes, on_end: Callable[[], None] | None = None) -> Any:
        assert slot.child is not None
        slot.child.send_bytes(message, self._patience)
        return self._answer(slot, on_end)

    def _answer(self, slot: _Slot, on_end: Callable[[], None] | None = None) -> Any:
        """What the worker answers. Raises EOFError or TimeoutError when it is lost."""
        assert slot.child is not None
        while True:
            kind, value = pickle.loads(self._heard(slot, slot.child))
            if kind == "done":
                return value
            if kind == "stale":
                raise StaleWorker(value)
            if kind == "refused":
                raise UserError(value)
            if on_end:
                for _ in range(value):  # as many episodes ended
                    on_end()

    def _heard(self, slot: _Slot, child: Connection) -> bytes:
        """The next message. Raises EOFError, or TimeoutError after a silence in which the worker was suspected."""
        early = self._patience * _SUSPECT
        try:
            return child.recv_bytes(early)
        except TimeoutError:
            before = slot.state
            self._mark(slot, WorkerState.SUSPECT, f"it said nothing for {early:g} s")
        message = child.recv_bytes(self._patience - early)
        self._mark(slot, before)
        return message

    def _mark(self, slot: _Slot, state: WorkerState, why: str = "") -> None:
        if slot.state is not state:
            slot.state = state
            self._tell(WorkerEvent(slot.number, state, why))

    def _bury(self, slot: _Slot, error: Exception) -> str:
        """Ends a lost worker and says in one line what became of it."""
        how = self._ended(slot, error)
        self._mark(slot, WorkerState.DEAD, how)
        return how

    def _ended(self, slot: _Slot, error: Exception) -> str:
        child, slot.child = slot.child, None
        if child is None:
            return f"it could not be started: {error}"
        how = f"it said nothing for {self._patience:g} s" if isinstance(error, TimeoutError) else child.ending(2.0)
        child.kill()
        lines = child.tail().strip().splitlines()
        return f"{how}; last it said: {lines[-1]}" if lines else how


@dataclass(frozen=True)
class _Policy:
    version: int
    sha256: str
    message: bytes
    """What loads it."""


@dataclass
class _Slot:
    """A worker's place: the process that sits there now and the policy that it loaded."""

    number: int
    child: Connection | None = None
    loaded: tuple[int, str] | None = None
    """Version and hash."""
    state: WorkerState = WorkerState.RETIRED
