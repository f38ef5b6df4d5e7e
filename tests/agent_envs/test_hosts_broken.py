"""Every way in which an environment in a process can break, and who is told about it."""

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from broken_env import BrokenEnv
from host_cases import Group, ended, wait_for

from agent_envs import SettingsError
from agent_envs.isolation.faults import EnvFault, FaultKind, HostLost
from agent_envs.isolation.host_process import HostSettings
from agent_envs.isolation.hosts import EnvHosts

pytestmark = pytest.mark.walls

DIES = {FaultKind.HUNG, FaultKind.EXITED, FaultKind.MEMORY}
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
        for _ in range(100):  # the second answer may take its time
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
