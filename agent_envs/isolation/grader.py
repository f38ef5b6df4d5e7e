"""Functions of outside libraries, called in a process that may be killed: graders and scorers that read model text.

Invariants:

- What is asked is JSON and what is answered is JSON; no text of a model is parsed, evaluated or compiled on this side.
- Every call ends, by its answer or by a bound (computing time, wall time, memory, size). A call that was not answered
  has a reason and no value: for a grader that means "not verified", which is not correct and is to be counted.
- A process that cannot be started at all is `BackendUnavailable`: the state of the world, no verdict about a text.

The function lives in an importable module of ours that imports what it needs at its top::

    judge = outside.shared("agent_envs.math.judge:same", Limits(cpu_seconds=3))
    reply = judge.call(gold, answer)  # starts the process the first time; from any thread
    correct = reply.value is True  # reply.reason says why there is no value

A module that lacks an optional package raises `SettingsError` when it is imported; the first call raises it here.
"""

import threading
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from typing import Any

from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.isolation.answers import OK, SETTINGS, encode, printable
from agent_envs.isolation.asking import Broken, asked
from agent_envs.isolation.child import Child
from agent_envs.isolation.faults import FaultKind
from agent_envs.ranges import check_above_0, check_ranges

_START_SECONDS = 120.0
"""Longest time to import the function's module, on a machine that is busy with other things."""


@dataclass(frozen=True)
class Limits:
    """What one call may take."""

    cpu_seconds: int = 3
    """Computing time. It decides on a busy machine as on an idle one, so a verdict depends on the text only."""
    seconds: float = 30.0
    """Wall time from when the process begins on it, for a function that waits instead of computing."""
    memory_mb: int = 1024
    """Memory that it may allocate, what was imported included."""
    input_kb: int = 64
    """Longest question, all arguments together, as JSON."""
    output_kb: int = 64
    """Longest answer, as JSON."""

    def __post_init__(self) -> None:
        check_ranges(self, cpu_seconds=1, memory_mb=128, input_kb=1, output_kb=1)
        check_above_0(self, "seconds")


@dataclass(frozen=True)
class Reply:
    """What a call came to."""

    value: Any = None
    """What the function returned, as JSON keeps it; None when there is a reason."""
    reason: str = ""
    """Why there is no value, in one line; empty when the function returned."""


class Outside:
    """One function ("module:name") in a process of its own, which starts with the first call and again after a kill.

    Every call is computed in a fork of that process, which starts in milliseconds, whatever was imported. Calls of
    several threads wait for each other.
    """

    def __init__(self, target: str, limits: Limits | None = None) -> None:
        self.target, self.limits = target, limits or Limits()
        self.restarts = 0
        """How often the process had to be started again."""
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._serials = count()

    def call(self, *arguments: Any) -> Reply:
        """Raises BackendUnavailable when the process cannot be started, SettingsError when a package is missing, and
        TypeError or ValueError for arguments that JSON cannot say.
        """
        question = encode(list(arguments))
        if len(question) > self.limits.input_kb * 1024:
            return Reply(reason=f"a question of {len(question)} bytes, where {self.limits.input_kb * 1024} are allowed")
        with self._lock:
            reply = self._asked(question)
            # Perhaps not because of this text: the system may be out of memory, somebody may have killed it.
            return self._asked(question) if reply.reason.startswith(FaultKind.EXITED) else reply

    def close(self) -> None:
        """Ends the process; the next call starts another one. Safe to call twice."""
        with self._lock:
            self._end()

    def _asked(self, question: bytes) -> Reply:
        child, serial = self._running(), next(self._serials)
        try:
            beginning, value = self._answer(child, b"%d %b" % (serial, question), serial, self.limits.seconds)
        except Broken as broken:
            self._end()
            return Reply(reason=f"{broken.kind}: {printable(broken.message)}")
        except BaseException:  # an interrupt: an answer would come that nobody waits for
            self._end()
            raise
        return Reply(value) if beginning == OK else Reply(reason=f"{beginning}: {printable(value)}")

    def _answer(self, child: Child, message: bytes, serial: int, seconds: float) -> tuple[str, Any]:
        return asked(child, [message], serial, seconds, self.limits.output_kb * 1024)

    def _running(self) -> Child:
        if self._child is not None and self._child.alive:
            return self._child
        self.restarts += self._child is not None
        self._end()
        try:
            child = Child("agent_envs.isolation.grader_process", secrets=False)
        except OSError as error:
            raise BackendUnavailable(f"the process of {self.target} cannot be started: {error}") from error
        try:
            setup = encode([self.target, asdict(self.limits)])
            beginning, value = self._answer(child, setup, -1, _START_SECONDS)
        except Broken as broken:
            child.kill()
            raise BackendUnavailable(
                f"the process of {self.target} cannot be started: {printable(str(broken))}"
            ) from broken
        except BaseException:
            child.kill()
            raise
        if beginning != OK:
            child.kill()
            if beginning == SETTINGS:
                raise SettingsError(value)
            raise BackendUnavailable(f"the process of {self.target} cannot be started: {printable(value)}")
        self._child = child
        return child

    def _end(self) -> None:
        # It stays there, dead, so that a start after it is known to be another one.
        if self._child is not None:
            self._child.kill()


@cache
def shared(target: str, limits: Limits | None = None) -> Outside:
    """The one process of this Python process for a function and its limits; it ends when this process does."""
    return Outside(target, limits)
