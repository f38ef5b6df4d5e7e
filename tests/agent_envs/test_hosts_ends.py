"""Environments in processes leave nothing behind: however they, or what started them, end."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from host_cases import Group, ended, open_files, running, wait_for

from agent_envs.isolation.faults import HostLost
from agent_envs.isolation.host_process import HostSettings


def test_closing_ends_calls_that_wait(tmp_path: Path) -> None:
    group = Group(tmp_path / "now")
    env = group.begin()
    group.when.write_text("hang@step")
    threading.Timer(0.3, group.hosts.close).start()
    with pytest.raises(HostLost):
        env.step("SAY(red)")
    env.close()
    group.hosts.close()
    with pytest.raises(RuntimeError, match="these hosts are closed"):
        group.hosts.make()


def test_nothing_is_left_open(tmp_path: Path) -> None:
    def once() -> list[int]:
        group = Group(tmp_path / "now", HostSettings(processes=2))
        with group.hosts:
            group.break_it("raise", "step")
            pids = [host._child.pid for host in group.hosts._hosts if host._child is not None]
            for _ in pids:
                group.break_it("kill", "step")
            assert group.fresh_one_works()
        assert len(pids) == 2
        return pids

    before = open_files()
    pids = once()
    assert open_files() == before
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)  # reaped, too


def test_processes_that_were_started_before_a_call_take_it(tmp_path: Path) -> None:
    before, group = open_files(), Group(tmp_path / "now", HostSettings(processes=2))
    with group.hosts:
        group.hosts.start()
        pids = [host._child.pid for host in group.hosts._hosts if host._child is not None]
        assert len(pids) == 2 and all(map(running, pids))
        group.hosts.start()
        assert group.fresh_one_works() and group.fresh_one_works()
        assert [host._child.pid for host in group.hosts._hosts if host._child is not None] == pids
    assert ended(pids, 5) and open_files() == before
    group.hosts.start()
    assert open_files() == before, "what was closed stays so"


PARENT = """
import os, subprocess, sys
from functools import partial
from pathlib import Path
from broken_env import BrokenEnv
from agent_envs.isolation.hosts import EnvHosts

when = Path(sys.argv[1])
env = EnvHosts(partial(BrokenEnv, when)).make()
env.reset(seed=0)
if sys.argv[2] == "held":  # somebody else has the lifeline, too
    other = subprocess.Popen(["sleep", "1000"], pass_fds=(env._host._child._lifeline,), start_new_session=True)
    when.with_suffix(".other").write_text(str(other.pid))
when.write_text("spin@step")
env.step("SAY(red)")
"""


@pytest.mark.parametrize("held", [False, True])
def test_a_parent_that_is_killed_takes_all_with_it(held: bool, tmp_path: Path) -> None:
    when = tmp_path / "now"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(when), "held" if held else ""],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    pids: list[int] = []
    try:
        pids += [int(pid) for pid in wait_for(when.with_suffix(".pids")).split()]
        parent.kill()
        parent.wait()
        if held:  # without the lifeline they go on: that is what ends them otherwise
            assert not ended(pids[:1], 1) and not ended(pids[1:], 0.1)
            os.kill(int(when.with_suffix(".other").read_text()), signal.SIGKILL)
        assert ended(pids, 5)
    finally:
        parent.kill()
        parent.wait()
        for pid in filter(running, pids):
            os.kill(pid, signal.SIGKILL)
