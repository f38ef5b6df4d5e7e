"""One process of environments, seen from its parent: calls one after the other, deadlines, and who is to blame.

Invariant: of all the environments of a process that ended, one at most gets an EnvFault for it: the one whose call was
being served, or the first that finds it ended. The others get HostLost.
"""

import pickle
import threading
from itertools import count
from time import monotonic
from typing import Any, NoReturn

from agent_envs.core import SettingsError
from agent_envs.isolation.answers import OK, SETTINGS, Garbage, decode, printable
from agent_envs.isolation.child import Child, Oversize
from agent_envs.isolation.faults import EnvFault, FaultKind, HostLost, Stage
from agent_envs.isolation.host import SLACK
from agent_envs.isolation.settings import HostSettings

_GRACE = 1.0
"""Seconds that a host gets to end by itself after it closed its connection, so that how it ended is known."""


class HostProcess:
    """One process: it starts with the first call, and once it is dead it stays so."""

    def __init__(self, make_env: bytes, settings: HostSettings) -> None:
        self.settings, self.envs = settings, 0
        self._setup = pickle.dumps((make_env, settings.memory_mb, settings.output_kb * 1024))
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
                beginning, value = decode(self._exchange(request, seconds), serial)
            except TimeoutError:
                self._fail(FaultKind.HUNG, stage, f"no answer in {seconds:g} s")
            except Oversize as error:
                self._fail(FaultKind.FLOODED, stage, str(error))
            except Garbage as error:
                self._fail(FaultKind.GARBAGE, stage, str(error))
            except EOFError:
                self._gone(stage)
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

    def _exchange(self, request: bytes, seconds: float) -> bytes:
        deadline = monotonic() + seconds
        if self._child is None:
            child = Child("agent_envs.isolation.host", secrets=False)  # what runs there may be a model's work
            with self._counting:
                self._child, killed = child, self._killed
            if killed:
                child.kill()
            child.send_bytes(self._setup, seconds)
        self._child.send_bytes(request, deadline - monotonic())
        return self._child.recv_bytes(deadline - monotonic(), self.settings.output_kb * 1024 + SLACK)

    def _gone(self, stage: Stage) -> NoReturn:
        """The process ended, or closed its connection."""
        assert self._child is not None
        how = self._child.ending(_GRACE)
        if self._child.alive:
            how = "it closed its connection"
        if self._child.flooded:
            self._fail(FaultKind.FLOODED, stage, "it printed more than it may")
        printed = self._child.tail()
        _, crash, where = printed.partition("Fatal Python error: ")  # its innermost frame comes first
        last_words = " ".join((crash + where)[:400].split() if crash else printed[-400:].split())
        self._fail(FaultKind.EXITED, stage, f"{how}{'; last it printed: ' if last_words else ''}{last_words}")

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
