"""One process of environments, seen from its parent: calls one after the other, deadlines, and who is to blame.

Invariants:

- Of all the environments of a process that ended, one at most gets an EnvFault for it: the one whose call was being
  served, or the first that finds it ended. The others get HostLost.
- Answers come in the order in which calls were sent, and whoever waits for one reads those before it, too.
"""

import contextlib
import pickle
import threading
from collections import deque
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

from agent_envs.core import SettingsError
from agent_envs.isolation.answers import OK, SETTINGS, printable
from agent_envs.isolation.asking import Broken, receive, send
from agent_envs.isolation.child import Child
from agent_envs.isolation.faults import EnvFault, FaultKind, HostLost, Stage
from agent_envs.ranges import check_above_0, check_ranges


@dataclass(frozen=True)
class HostSettings:
    """The processes that environments live in, and what a call of an environment may take."""

    processes: int = 2
    """Processes that share the environments; those of one process wait for each other."""
    reset_seconds: float = 60.0
    """Longest time to make or to reset an environment; one that takes longer hangs, and its process is killed."""
    step_seconds: float = 30.0
    """Longest time of a step, including the grading of the last one, and of any other call."""
    memory_mb: int = 4096
    """Memory in MiB that the environments of one process may allocate together."""
    output_kb: int = 1024
    """Longest answer in KiB: observation, system prompt and info."""

    def __post_init__(self) -> None:
        check_ranges(self, processes=(1, 1024), memory_mb=(128, 1 << 24), output_kb=(1, 1 << 20))
        check_above_0(self, "reset_seconds", "step_seconds")


AHEAD = 4096
"""Bytes of calls that a process may be sent before it begins on them: far less than a socket holds, so that whoever
sends never waits."""


@dataclass
class Call:
    """A call of an environment, and what came of it."""

    serial: int
    stage: Stage
    request: bytes
    seconds: float
    """Longest time from when the process begins on it."""
    came: tuple[str, Any] | EnvFault | HostLost | None = None
    """(beginning, value) of the answer, or why there is none; None until it is known."""


class HostProcess:
    """One process: it starts with the first call or before, and once it is dead it stays so."""

    def __init__(self, make_env: bytes, settings: HostSettings) -> None:
        self.settings, self.envs = settings, 0
        self._first = [pickle.dumps((make_env, settings.memory_mb, settings.output_kb * 1024))]
        """What a process is sent before the first request."""
        self._child: Child | None = None
        self._serving, self._counting = threading.Lock(), threading.Lock()
        self._serials, self._numbers = count(), count()
        self._sent: deque[Call] = deque()
        """Calls that it has not answered, in the order in which it does."""
        self._since = 0.0
        """When it began on the first of them, at the earliest."""
        self._killed = False
        self._blamed = False
        """Whether an environment was told already that it ended the process."""

    @property
    def started(self) -> bool:
        return self._child is not None

    @property
    def dead(self) -> bool:
        return self._killed or (self._child is not None and not self._child.alive)

    def add(self, envs: int) -> None:
        with self._counting:
            self.envs += envs

    def number(self) -> int:
        """A number for a new environment."""
        return next(self._numbers)

    def kill(self) -> None:
        """From outside: nobody is to blame."""
        with self._counting:
            self._killed = self._blamed = True
        if self._child is not None:
            self._child.kill()

    def bury(self) -> None:
        """Frees what the dead process held; one of its environments has still to take the blame."""
        if self._child is not None:
            self._child.kill()

    def begin(self, stage: Stage, *arguments: Any) -> Call:
        """A call for `answer`. Waits for nothing: a process that is up is sent it now where nobody waits for an answer
        and `AHEAD` allows it, and begins on it when it has answered those before."""
        seconds = self.settings.reset_seconds if stage in (Stage.MAKE, Stage.RESET) else self.settings.step_seconds
        serial = next(self._serials)
        call = Call(serial, stage, pickle.dumps((serial, stage.value, *arguments)), seconds)
        if self._serving.acquire(blocking=False):
            try:
                unread = sum(len(other.request) for other in self._sent) + len(call.request)
                if self._child is not None and not self._killed and unread <= AHEAD:
                    with contextlib.suppress(Broken):  # whose fault that is, is seen where answers are taken
                        self._send(call)
            finally:
                self._serving.release()
        return call

    def answer(self, call: Call) -> Any:
        """What the environment answered. Raises EnvFault, HostLost and SettingsError."""
        with self._serving:
            try:
                while call.came is None:
                    self._advance(call)
            except BaseException:  # an interrupt: an answer would come that nobody waits for
                self.kill()
                raise
        if not isinstance(call.came, tuple):
            raise call.came
        beginning, value = call.came
        if beginning == OK:
            return value
        if beginning == SETTINGS:
            raise SettingsError(value)
        raise EnvFault(FaultKind(beginning), call.stage, value)

    def start(self) -> None:
        """Starts the process where that was not done yet, and waits for nothing. Where the system has none left, the
        first call says so."""
        with self._serving, contextlib.suppress(OSError):
            if self._child is None and not self._killed:
                self._started()

    def _started(self) -> Child:
        child = Child("agent_envs.isolation.host", secrets=False)  # what runs there may be a model's work
        with self._counting:
            self._child, killed = child, self._killed
        if killed:
            child.kill()
        return child

    def _advance(self, call: Call) -> None:
        """Takes the next answer, of whichever call; where there is none to come, sends ``call``."""
        if self._killed:
            call.came = _lost()
        elif self._sent:
            self._receive(self._sent[0])
        else:
            try:
                self._send(call)
            except Broken as broken:
                self._end(call, broken.kind, broken.message)

    def _send(self, call: Call) -> None:
        """Raises Broken, and OSError where no process can be started."""
        child, first, self._first = self._child or self._started(), self._first, []
        now = monotonic()
        if not self._sent:
            self._since = now
        send(child, [*first, call.request], now, call.seconds)
        self._sent.append(call)

    def _receive(self, call: Call) -> None:
        """Takes the answer to the first call that was sent."""
        assert self._child is not None
        limit = self.settings.output_kb * 1024
        try:
            beginning, value = receive(self._child, call.serial, self._since, call.seconds, limit)
        except Broken as broken:
            return self._end(call, broken.kind, broken.message)
        if beginning == FaultKind.MEMORY:  # what else it holds may be broken, too
            return self._end(call, FaultKind.MEMORY, value)
        self._sent.popleft()
        call.came, self._since = (beginning, value), monotonic()

    def _end(self, call: Call, kind: FaultKind, message: str) -> None:
        """Kills the process. ``call`` takes the blame, unless another did; those that wait behind it are lost."""
        with self._counting:
            blamed, self._killed, self._blamed = self._blamed, True, True
        assert self._child is not None
        self._child.kill()
        call.came = _lost() if blamed else EnvFault(kind, call.stage, printable(message))
        for other in self._sent:
            other.came = other.came or _lost()
        self._sent.clear()


def _lost() -> HostLost:
    return HostLost("the process of this environment was ended because of another one, or closed")
