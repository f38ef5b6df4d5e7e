"""One process of environments, seen from its parent: calls one after the other, deadlines, and who is to blame.

Invariant: of all the environments of a process that ended, one at most gets an EnvFault for it: the one whose call was
being served, or the first that finds it ended. The others get HostLost.
"""

import contextlib
import pickle
import threading
from dataclasses import dataclass
from itertools import count
from typing import Any, NoReturn

from agent_envs.core import SettingsError
from agent_envs.isolation.answers import OK, SETTINGS, printable
from agent_envs.isolation.asking import Broken, asked
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


class HostProcess:
    """One process: it starts with the first call or before, and once it is dead it stays so."""

    def __init__(self, make_env: bytes, settings: HostSettings) -> None:
        self.settings, self.envs = settings, 0
        self._first = [pickle.dumps((make_env, settings.memory_mb, settings.output_kb * 1024))]
        """What a process is sent before the first request."""
        self._child: Child | None = None
        self._serving, self._counting = threading.Lock(), threading.Lock()
        self._serials, self._numbers = count(), count()
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

    def call(self, stage: Stage, *arguments: Any) -> Any:
        """What the environment answered. Raises EnvFault, HostLost and SettingsError."""
        seconds = self.settings.reset_seconds if stage in (Stage.MAKE, Stage.RESET) else self.settings.step_seconds
        serial = next(self._serials)
        request = pickle.dumps((serial, stage.value, *arguments))
        with self._serving:
            if self._killed:
                self._lost()
            try:
                child, first, self._first = self._child or self._started(), self._first, []
                beginning, value = asked(child, [*first, request], serial, seconds, self.settings.output_kb * 1024)
            except Broken as broken:
                self._fail(broken.kind, stage, broken.message)
            except BaseException:  # an interrupt: an answer would come that nobody waits for
                self.kill()
                raise
            if beginning == FaultKind.MEMORY:  # what else it holds may be broken, too
                self._fail(FaultKind.MEMORY, stage, value)
        if beginning == OK:
            return value
        if beginning == SETTINGS:
            raise SettingsError(value)
        raise EnvFault(FaultKind(beginning), stage, value)

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

    def _fail(self, kind: FaultKind, stage: Stage, message: str) -> NoReturn:
        with self._counting:
            blamed, self._killed, self._blamed = self._blamed, True, True
        assert self._child is not None
        self._child.kill()
        if blamed:
            self._lost()
        raise EnvFault(kind, stage, printable(message)) from None

    def _lost(self) -> NoReturn:
        raise HostLost("the process of this environment was ended because of another one, or closed") from None
