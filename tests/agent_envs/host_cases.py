"""What the tests of environments in processes share."""

import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from broken_env import BrokenEnv

from agent_envs.isolation.faults import EnvFault, HostLost, Stage
from agent_envs.isolation.host_process import HostSettings
from agent_envs.isolation.hosts import EnvHosts, RemoteEnv

ONE = HostSettings(processes=1, memory_mb=256)


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie (who reaps an orphan is the system's affair)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(pids: Iterable[int], seconds: float) -> bool:
    """Whether all of them end in that time."""
    pids, deadline = list(pids), time.monotonic() + seconds
    while any(map(running, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def wait_for(file: Path, seconds: float = 20.0) -> str:
    deadline = time.monotonic() + seconds
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.02)
    return file.read_text()


class Group:
    """Environments that can be told to break, in one process: one of them breaks, and one stands beside it."""

    def __init__(self, when: Path, settings: HostSettings = ONE) -> None:
        self.when = when
        self.hosts = EnvHosts(partial(BrokenEnv, when), settings)
        self.neighbour: RemoteEnv

    def begin(self) -> RemoteEnv:
        env = self.hosts.make()
        env.reset(seed=0)
        return env

    def break_it(self, how: str, where: str) -> pytest.ExceptionInfo[EnvFault]:
        self.neighbour = self.begin()
        env = self.hosts if where == "make" else self.begin()
        self.when.write_text(f"{how}@{where}")
        try:
            with pytest.raises(EnvFault) as caught:
                getattr(env, where)(*["SAY(red)"] * (where == "step"))
        finally:
            self.when.unlink()
        assert caught.value.stage == Stage(where)
        if isinstance(env, RemoteEnv):
            if where != "close":
                with pytest.raises(RuntimeError, match="must not be used again"):
                    env.step("SAY(red)")
            env.close()
        return caught

    def neighbour_lives(self) -> bool:
        try:
            self.neighbour.step("SAY(red)")
        except HostLost:
            return False
        finally:
            self.neighbour.close()
        return True

    def fresh_one_works(self) -> bool:
        env = self.begin()
        fine = env.step("SAY(red)")[1] >= 0
        env.close()
        return fine
