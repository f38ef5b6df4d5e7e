"""Environments in processes that can be killed: whatever one of them does, its caller gets an answer or a fault.

Invariants:

- Every call ends: by its deadline, which counts from when its host begins on it, the host has answered or is killed.
- Blame falls on the one environment whose call was being served; the others of a host that had to die get HostLost.
- Nothing that a host says is trusted: it is read as JSON of bounded length, and checked.

An `EnvHosts` makes environments; each is a `RemoteEnv`, which is used as a `TextEnv` is.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, NoReturn, Self, TypeVar

from gymnasium.error import ResetNeeded

from agent_envs.answers import OK, SETTINGS, Garbage, decode, nothing, printable, reset_values, step_values
from agent_envs.child import Child, Oversize
from agent_envs.core import PlayableEnv, SettingsError
from agent_envs.faults import EnvFault, FaultKind, HostLost, Stage, one_line
from agent_envs.host import SLACK

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that a host gets to end by itself after it closed its connection, so that how it ended is known."""


@dataclass(frozen=True)
class HostSettings:
    """The processes that environments live in, and what a call of an environment may take."""

    processes: int = 2
    """Processes that share the environments; those of one process wait for each other."""
    reset_seconds: float = 60.0
    """Longest time to make or to reset an environment; one that takes longer hangs, and its process is killed."""
    step_seconds: float = 30.0
    """Longest time of a step, the grading of a last one included, and of anything else."""
    memory_mb: int = 4096
    """Memory in MiB that the environments of one process may allocate together."""
    output_kb: int = 1024
    """Longest answer in KiB: observation, system prompt and info."""

    def __post_init__(self) -> None:
        for name, least in (("processes", 1), ("memory_mb", 128), ("output_kb", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("reset_seconds", "step_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, not {getattr(self, name)}")


class EnvHosts:
    """Makes environments and spreads them over processes, which start when they are needed and again when one died.

    ``make_env`` is pickled: a class or function of an importable module, or a `functools.partial` of one. All methods
    may be called from any thread.
    """

    def __init__(self, make_env: Callable[[], PlayableEnv], settings: HostSettings | None = None) -> None:
        self.settings = settings or HostSettings()
        try:
            self._make_env = pickle.dumps(make_env)
        except Exception as error:
            hint = "use a function or class of a module, or a functools.partial of one"
            raise TypeError(f"make_env cannot be pickled ({one_line(error)}): {hint}") from error
        self._lock = threading.Lock()
        self._hosts = [_Host(self._make_env, self.settings) for _ in range(self.settings.processes)]
        self._closed = False

    def make(self) -> RemoteEnv:
        """A new environment, in the process that has the fewest. Raises EnvFault, SettingsError."""
        while True:
            host = self._reserve()
            try:
                env = RemoteEnv(host, host.number())
                env._call(Stage.MAKE, nothing)
                return env
            except HostLost:  # another environment ended it meanwhile
                host.add(-1)
            except BaseException:
                host.add(-1)
                raise

    def close(self) -> None:
        """Kills all processes; calls that wait for one get HostLost. Safe to call twice."""
        with self._lock:
            self._closed = True
        for host in self._hosts:
            host.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reserve(self) -> _Host:
        with self._lock:
            if self._closed:
                raise RuntimeError("these hosts are closed")
            for number, host in enumerate(self._hosts):
                if host.dead:
                    host.bury()
                    self._hosts[number] = _Host(self._make_env, self.settings)
            host = min(self._hosts, key=lambda host: (host.envs, not host.started))
            host.add(1)
            return host


class _Host:
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
            child = Child("agent_envs.host")
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
        if self._child.flooded:
            self._fail(FaultKind.FLOODED, stage, "it printed more than it may")
        printed = self._child.tail()
        _, crash, where = printed.partition("Fatal Python error: ")  # its innermost frame comes first
        said = " ".join((crash + where)[:400].split() if crash else printed[-400:].split())
        self._fail(FaultKind.EXITED, stage, f"{how}{'; last it printed: ' if said else ''}{said}")

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


class RemoteEnv:
    """An environment in a process of `EnvHosts`; it is used as a `TextEnv` is, by one thread at a time.

    Every call may raise EnvFault, after which the environment must not be used again, or HostLost, after which it is
    gone and its episode has to be played again. `info` comes as JSON keeps it: a tuple becomes a list.
    """

    def __init__(self, host: _Host, number: int, prompt: str | None = None) -> None:
        self._host, self._number, self._prompt = host, number, prompt
        self._unusable = ""
        self._closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; returns its first observation and info."""
        observation, info, self._prompt = self._call(Stage.RESET, reset_values, seed, options)
        return observation, info

    def system_prompt(self) -> str:
        """Of the current episode; it came with the answer of the last reset."""
        if self._prompt is None:
            raise ResetNeeded("call reset before asking for the system prompt")
        return self._prompt

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays one turn; returns Gymnasium's five values."""
        return self._call(Stage.STEP, step_values, action)

    def fork(self) -> RemoteEnv:
        """An independent environment at the same state, in the same process."""
        number = self._host.number()
        self._call(Stage.FORK, nothing, number)
        self._host.add(1)
        return RemoteEnv(self._host, number, self._prompt)

    def close(self) -> None:
        """Lets go of the environment. Safe to call twice; silent when it is known to be broken or gone."""
        if self._closed:
            return
        self._closed = True
        self._host.add(-1)
        try:
            nothing(self._host.call(Stage.CLOSE, self._number))
        except HostLost:
            pass
        except (EnvFault, SettingsError):
            if not self._unusable:
                raise

    def _call(self, stage: Stage, read: Callable[[Any], T], *arguments: Any) -> T:
        if self._closed or self._unusable:
            raise RuntimeError(f"this environment must not be used again: {self._unusable or 'it was closed'}")
        try:
            return read(self._host.call(stage, self._number, *arguments))
        except Garbage as error:
            self._unusable = str(error)
            raise EnvFault(FaultKind.GARBAGE, stage, str(error)) from None
        except (EnvFault, HostLost) as error:
            self._unusable = str(error)
            raise
