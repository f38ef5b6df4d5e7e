"""Environments in processes that can be killed: whatever one of them does, its caller gets an answer or a fault.

Invariants:

- Every call ends: by its deadline, which counts from when its host begins on it, the host has answered or is killed.
- Blame falls on the one environment whose call was being served; the others of a host that had to die get HostLost.
- Nothing that a host says is trusted: it is read as JSON of bounded length, and checked.

An `EnvHosts` makes environments; each is a `RemoteEnv`, which is used as a `TextEnv` is::

    with EnvHosts(partial(make, "wiki"), HostSettings(processes=4)) as hosts:
        env = hosts.make()
        observation, info = env.reset(seed=0)

A process is not a sandbox: what runs in it may read, write and kill whatever its user may.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

from gymnasium.error import ResetNeeded

from agent_envs.core import PlayableEnv, SettingsError
from agent_envs.isolation.answers import Garbage, nothing, reset_values, step_values
from agent_envs.isolation.faults import EnvFault, FaultKind, HostLost, Stage, one_line
from agent_envs.isolation.host_process import Call, HostProcess, HostSettings

T = TypeVar("T")


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
        self._hosts = [HostProcess(self._make_env, self.settings) for _ in range(self.settings.processes)]
        self._closed = False

    def start(self) -> None:
        """Starts all processes now and waits for none, so that the first environments need not wait for one."""
        for host in self._hosts:
            host.start()

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

    def _reserve(self) -> HostProcess:
        with self._lock:
            if self._closed:
                raise RuntimeError("these hosts are closed")
            for number, host in enumerate(self._hosts):
                if host.dead:
                    host.bury()
                    self._hosts[number] = HostProcess(self._make_env, self.settings)
            host = min(self._hosts, key=lambda host: (host.envs, not host.started))
            host.add(1)
            return host


class RemoteEnv:
    """An environment in a process of `EnvHosts`; it is used as a `TextEnv` is, by one thread at a time.

    Every call may raise EnvFault, after which the environment must not be used again, or HostLost, after which it is
    gone and its episode has to be played again. `info` comes as JSON keeps it: a tuple becomes a list.
    """

    def __init__(self, host: HostProcess, number: int, prompt: str | None = None) -> None:
        self._host, self._number, self._prompt = host, number, prompt
        self._begun: tuple[str, Call] | None = None
        """An action that was begun, and its call."""
        self._unusable = ""
        self._closed = False

    @property
    def process(self) -> object:
        """Stands for the process that it lives in: environments with the same one wait for each other."""
        return self._host

    @property
    def gone(self) -> bool:
        """Whether that process has ended."""
        return self._host.dead

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; returns its first observation and info."""
        observation, info, self._prompt = self._call(Stage.RESET, reset_values, seed, options)
        return observation, info

    def system_prompt(self) -> str:
        """Of the current episode; it came with the answer of the last reset."""
        if self._prompt is None:
            raise ResetNeeded("call reset before asking for the system prompt")
        return self._prompt

    def begin_step(self, action: str) -> None:
        """Has the process begin on ``step(action)``, which has to be the next call, as soon as it can."""
        self._usable()
        self._begun = action, self._host.begin(Stage.STEP, self._number, action)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays one turn; returns Gymnasium's five values."""
        if self._begun is None or self._begun[0] != action:
            return self._call(Stage.STEP, step_values, action)
        (_, call), self._begun = self._begun, None
        return self._answer(call, step_values)

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
        known = self._unusable
        try:
            self._answer(self._host.begin(Stage.CLOSE, self._number), nothing)
        except HostLost:
            pass
        except (EnvFault, SettingsError):
            if not known:
                raise

    def _usable(self) -> None:
        """Raises RuntimeError where it is not."""
        if self._closed or self._unusable:
            raise RuntimeError(f"this environment must not be used again: {self._unusable or 'it was closed'}")
        if self._begun is not None:
            raise RuntimeError(f"this environment has begun on {self._begun[0]!r:.80}: step must be called with that")

    def _call(self, stage: Stage, read: Callable[[Any], T], *arguments: Any) -> T:
        self._usable()
        return self._answer(self._host.begin(stage, self._number, *arguments), read)

    def _answer(self, call: Call, read: Callable[[Any], T]) -> T:
        try:
            return read(self._host.answer(call))
        except Garbage as error:
            self._unusable = str(error)
            raise EnvFault(FaultKind.GARBAGE, call.stage, str(error)) from None
        except (EnvFault, HostLost) as error:
            self._unusable = str(error)
            raise
