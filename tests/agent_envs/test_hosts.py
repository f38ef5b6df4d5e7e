"""Environments in processes: what they answer, every way to break, and who is told about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broken_env import BrokenEnv, EchoEnv
from host_cases import ended, open_files, running, wait_for

from agent_envs import SettingsError, TextEnv
from agent_envs.faults import EnvFault, FaultKind, HostLost, Stage
from agent_envs.hosts import EnvHosts, HostSettings, RemoteEnv
from agent_envs.identity import IdentityEnv
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv

ONE = HostSettings(processes=1, memory_mb=256)
DIES = {FaultKind.HUNG, FaultKind.EXITED, FaultKind.MEMORY}


def replay(env: TextEnv | RemoteEnv, task: Any, actions: list[str]) -> list[Any]:
    """Everything that it says."""
    said: list[Any] = [env.reset(seed=3, options={"task": task}), env.system_prompt()]
    return said + [env.step(action) for action in actions]


def conversation(env: TextEnv, task: Any) -> list[str]:
    """What the expert would do, between actions that are wrong in some way."""
    actions = ["\ud800 <action>动作(\u0000)</action>", ""]
    env.reset(seed=3, options={"task": task})
    for action in actions:
        env.step(action)
    over = False
    while not over:
        actions.append(env.expert())
        _, _, terminated, truncated, _ = env.step(actions[-1])
        over = terminated or truncated
    return actions


@pytest.mark.parametrize("kind", ["identity", "wiki"])
def test_the_same_conversation_as_without_a_process(kind: str, small: WikiConfig) -> None:
    make = IdentityEnv if kind == "identity" else partial(WikiEnv, small)
    with EnvHosts(make, HostSettings(processes=2)) as hosts:
        remote, env = [hosts.make(), hosts.make()], make()
        for number in range(6):
            task = env.tasks("train")[number * 7]
            actions = conversation(env, task)
            assert replay(remote[number % 2], task, actions) == replay(env, task, actions)


@pytest.mark.parametrize(
    "text", ["", "\x00\r\n\x85\u2028", "\ufeff🙂 é 界", "\ud83d\ude00", "\udc80 \ud800", '"\\u0041']
)
def test_any_text_comes_back(text: str, echo: EnvHosts) -> None:
    env = echo.make()
    assert env.reset(options={"say": text}) == (text, {"said": text}) and env.system_prompt() == text
    assert env.step(text) == (text, 0.1 + 0.2, False, True, {text: [text, None, 1e-320, 2**60]})
    env.close()


@pytest.fixture(scope="module")
def echo() -> Iterator[EnvHosts]:
    with EnvHosts(EchoEnv, ONE) as hosts:
        yield hosts


def test_forks_go_their_own_way() -> None:
    with EnvHosts(IdentityEnv, ONE) as hosts:
        env, local = hosts.make(), IdentityEnv()
        task = local.tasks("train")[0]
        env.reset(options={"task": task})
        twin = env.fork()
        assert twin.system_prompt() == env.system_prompt()
        first = env.step(f"SAY({task.data[0]})")
        assert twin.step("SAY(nothing)")[1] == 0 and first[1] > 0
        env.close()
        assert twin.step(f"SAY({task.data[1]})")[1] > 0


CASES = [
    ("raise", "make", FaultKind.RAISED, "ValueError: no way"),
    ("raise", "reset", FaultKind.RAISED, "ValueError: no way"),
    ("raise", "step", FaultKind.RAISED, "ValueError: no way"),
    ("raise", "fork", FaultKind.RAISED, "ValueError: no way"),
    ("raise", "close", FaultKind.RAISED, "ValueError: no way"),
    ("unspeakable", "step", FaultKind.RAISED, "Unspeakable"),
    ("unavailable", "make", FaultKind.UNAVAILABLE, "the disk is gone"),
    ("unavailable", "reset", FaultKind.UNAVAILABLE, "the disk is gone"),
    ("unavailable", "step", FaultKind.UNAVAILABLE, "the disk is gone"),
    ("exit", "make", FaultKind.EXITED, "exit status 3; last it printed: last words"),
    ("exit", "reset", FaultKind.EXITED, "exit status 3; last it printed: last words"),
    ("exit", "step", FaultKind.EXITED, "exit status 3; last it printed: last words"),
    ("_exit", "step", FaultKind.EXITED, "exit status 4"),
    ("kill", "make", FaultKind.EXITED, "signal SIGKILL"),
    ("kill", "reset", FaultKind.EXITED, "signal SIGKILL"),
    ("kill", "step", FaultKind.EXITED, "signal SIGKILL"),
    ("kill", "close", FaultKind.EXITED, "signal SIGKILL"),
    ("segfault", "step", FaultKind.EXITED, "signal SIGSEGV; last it printed: .*broken_env.py"),
    ("deaf", "step", FaultKind.EXITED, "it closed its connection"),
    ("memory", "make", FaultKind.MEMORY, "MemoryError"),
    ("memory", "reset", FaultKind.MEMORY, "MemoryError"),
    ("memory", "step", FaultKind.MEMORY, "MemoryError"),
    ("print", "make", FaultKind.FLOODED, "printed more"),
    ("print", "reset", FaultKind.FLOODED, "printed more"),
    ("print", "step", FaultKind.FLOODED, "printed more"),
    ("flood", "reset", FaultKind.FLOODED, "1048576 are allowed"),
    ("flood", "step", FaultKind.FLOODED, "1048576 are allowed"),
    ("flooded info", "step", FaultKind.FLOODED, "1048576 are allowed"),
    *((how, "reset", FaultKind.GARBAGE, "") for how in ("none", "text", "four", "bytes", "list", "set", "nan inside")),
    *((how, "step", FaultKind.GARBAGE, "") for how in ("none", "text", "four", "bytes", "number", "nan", "infinite")),
    *((how, "step", FaultKind.GARBAGE, "") for how in ("huge", "bool", "worded", "flag", "flags", "list", "set")),
    ("nan inside", "step", FaultKind.GARBAGE, "JSON cannot say"),
    ("send:ffffffffffffffff", "step", FaultKind.FLOODED, "a message of"),
    ("send:0000000000000003" + b"[1]".hex(), "step", FaultKind.GARBAGE, "did not answer what it was asked"),
    ("send:0000000000000004" + b"\x80\x04N.".hex(), "step", FaultKind.GARBAGE, "did not answer in JSON"),
]


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


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    group = Group(tmp_path_factory.mktemp("group") / "now")
    with group.hosts:
        yield group


@pytest.mark.parametrize(("how", "where", "kind", "message"), CASES)
def test_every_way_to_break(how: str, where: str, kind: FaultKind, message: str, group: Group) -> None:
    caught = group.break_it(how, where)
    assert caught.value.kind == kind
    caught.match(message)
    assert caught.value.message.isprintable() and len(caught.value.message) <= 500
    killed = kind in DIES or how == "print" or how.startswith("send")
    assert group.neighbour_lives() is not killed
    assert group.fresh_one_works()


@pytest.mark.parametrize(
    ("how", "where", "settings"),
    [
        ("hang", "reset", HostSettings(processes=1, reset_seconds=3)),
        ("hang", "step", HostSettings(processes=1, step_seconds=0.5)),
        ("spin", "step", HostSettings(processes=1, step_seconds=0.5)),
        ("send:000000000000006400:hang", "step", HostSettings(processes=1, step_seconds=0.5)),
        ("hang", "close", HostSettings(processes=1, step_seconds=0.5)),
    ],
)
def test_what_hangs_is_killed(how: str, where: str, settings: HostSettings, tmp_path: Path) -> None:
    group = Group(tmp_path / "now", settings)
    with group.hosts:
        started = time.monotonic()
        caught = group.break_it(how, where)
        assert time.monotonic() - started < 15
        assert caught.value.kind == FaultKind.HUNG
        caught.match(r"no answer in (0\.5|3) s")
        assert not group.neighbour_lives() and group.fresh_one_works()
        if how == "spin":
            assert ended(map(int, wait_for(tmp_path / "now.pids").split()), 5)


def test_what_hangs_when_it_is_made_is_killed(tmp_path: Path) -> None:
    (tmp_path / "now").write_text("hang@make")
    hosts = EnvHosts(partial(BrokenEnv, tmp_path / "now"), HostSettings(reset_seconds=0.7))
    with hosts, pytest.raises(EnvFault, match=r"make: hung: no answer in 0\.7 s"):
        hosts.make()


def test_a_broken_environment_that_hangs_in_close_is_killed_silently(tmp_path: Path) -> None:
    (tmp_path / "now").write_text("hang@close")
    with EnvHosts(partial(BrokenEnv, tmp_path / "now"), HostSettings(processes=1, step_seconds=0.5)) as hosts:
        env = hosts.make()
        with pytest.raises(EnvFault, match="step: raised: ResetNeeded"):
            env.step("SAY(red)")
        env.close()
        env.close()


def test_two_processes_that_answer_as_one_are_found_out(group: Group) -> None:
    env = group.begin()
    group.when.write_text("twin@step")
    with pytest.raises(EnvFault, match=r"garbage: .*did not answer what it was asked"):
        for _ in range(3):
            env.step("SAY(red)")
            group.when.unlink(missing_ok=True)
            time.sleep(0.1)


def test_a_process_that_ends_between_two_calls_is_blamed_on_one_environment_only(group: Group) -> None:
    envs = [group.begin() for _ in range(3)]
    group.when.write_text("later@step")
    envs[0].step("SAY(red)")
    group.when.unlink()
    deadline = time.monotonic() + 5
    while not envs[0]._host.dead and time.monotonic() < deadline:
        time.sleep(0.01)
    assert group.fresh_one_works()  # it takes a new process, and no blame
    with pytest.raises(EnvFault, match="step: exited: exit status 5"):
        envs[0].step("SAY(red)")
    for env in envs[1:]:
        with pytest.raises(HostLost):
            env.step("SAY(red)")


def test_what_a_user_can_mend_passes_through(group: Group) -> None:
    env = group.begin()
    group.when.write_text("settings@step")
    with pytest.raises(SettingsError, match=r"^broken: use another word$"):
        env.step("SAY(red)")
    group.when.unlink()
    with pytest.raises(SettingsError, match="unknown reset option 'tusk'"):
        env.reset(options={"tusk": 1})


def test_what_cannot_be_sent_harms_nobody() -> None:
    with EnvHosts(IdentityEnv, ONE) as hosts:
        env = hosts.make()
        with pytest.raises((TypeError, AttributeError), match="pickle"):
            env.reset(options={"task": lambda: None})
        assert env.reset(seed=0)
    with pytest.raises(TypeError, match=r"make_env cannot be pickled .* use a function or class of a module"):
        EnvHosts(lambda: IdentityEnv())


def test_a_factory_that_the_process_does_not_find_is_for_the_user_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EchoEnv, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "EchoEnv", EchoEnv, raising=False)
    with EnvHosts(EchoEnv, ONE) as hosts, pytest.raises(SettingsError, match="make_env cannot be used in a process"):
        hosts.make()


def test_the_deadline_counts_no_waiting_for_others(tmp_path: Path) -> None:
    (tmp_path / "now").write_text("slow:0.25@step")
    settings = HostSettings(processes=1, step_seconds=1)
    with EnvHosts(partial(BrokenEnv, tmp_path / "now"), settings) as hosts, ThreadPoolExecutor(8) as pool:
        envs = [hosts.make() for _ in range(8)]
        for env in envs:
            env.reset(seed=0)
        started = time.monotonic()
        assert len(list(pool.map(lambda env: env.step("SAY(red)"), envs))) == 8
        assert time.monotonic() - started > settings.step_seconds


def test_environments_are_spread_over_the_processes() -> None:
    with EnvHosts(IdentityEnv, HostSettings(processes=2)) as hosts, ThreadPoolExecutor(4) as pool:
        envs = list(pool.map(lambda _: hosts.make(), range(8)))
        places = [env._host for env in envs]
        assert sorted(map(places.count, set(places))) == [4, 4]
        for env, place in zip(envs, places, strict=True):
            if place is places[0]:
                env.close()
        assert [hosts.make()._host for _ in range(3)] == [places[0]] * 3


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


def test_an_interrupt_ends_the_process_for_its_answer_would_be_taken_for_another(group: Group) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    group.neighbour = group.begin()
    group.when.write_text("slow:1000@step")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            group.neighbour.step("SAY(red)")
    finally:
        signal.signal(signal.SIGALRM, before)
        group.when.unlink()
    assert not group.neighbour_lives() and group.fresh_one_works()


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


PARENT = """
import os, subprocess, sys
from functools import partial
from pathlib import Path
from broken_env import BrokenEnv
from agent_envs.hosts import EnvHosts

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


@pytest.mark.parametrize(
    "settings",
    [{"processes": 0}, {"reset_seconds": 0}, {"step_seconds": float("nan")}, {"memory_mb": 1}, {"output_kb": 0}],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        HostSettings(**settings)
