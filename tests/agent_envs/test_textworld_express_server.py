"""The Java server of TextWorld-Express: one for each process, and none is left when the process is gone."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from env_packages import skip_without

import agent_envs
from agent_envs.adapters.textworld_express import server as module
from agent_envs.adapters.textworld_express.config import TextWorldExpressConfig
from agent_envs.adapters.textworld_express.game import TextGame
from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.isolation.hosts import EnvHosts, HostSettings

pytestmark = pytest.mark.adapters


@pytest.fixture(autouse=True)
def _needs() -> None:
    skip_without("textworld_express")


SECONDS = 15.0
PLAYS = """
import os, sys, time
{first}
from agent_envs.adapters.textworld_express.game import TextGame
from agent_envs.adapters.textworld_express.server import server
game = TextGame("coin", "")
game.reset(seed=0)
child = os.fork() if {forks} else 0
if child or not {forks}:
    print(server().process.pid, child, flush=True)
time.sleep(60)
"""
"""A program with a game, which may leave a child behind."""
IMMORTAL = "import py4j.java_gateway as j; once = j.launch_gateway\n" + (
    "j.launch_gateway = lambda **how: once(**{**how, 'die_on_exit': False})"
)


def ends(pid: int, seconds: float = SECONDS) -> bool:
    """Whether a process is gone in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


def killed(first: str, *, forks: bool) -> tuple[int, int]:
    """Kills a program in the middle of its game: (its Java process, its child)."""
    code = PLAYS.format(first=first, forks=forks)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    java, child = map(int, process.stdout.readline().split())
    assert not ends(java, 0.5)
    process.kill()
    process.wait()
    process.stdout.close()
    return java, child


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("forks", [False, True])
def test_it_ends_with_a_process_that_is_killed(forks: bool) -> None:
    java, child = killed("", forks=forks)
    try:
        assert ends(java)
    finally:
        if child:
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_one_that_reads_no_pipe_would_stay() -> None:
    java, _ = killed(IMMORTAL, forks=False)
    try:
        assert not ends(java, 2.0)
    finally:
        os.kill(java, signal.SIGKILL)


def test_there_is_one_for_each_process() -> None:
    games = [TextGame("coin", ""), TextGame("simonsays", "")]
    for one in games:
        one.reset(seed=0)
    assert module.server() is module.server()
    first = games[0]._seat
    games[0].close()
    again = TextGame("coin", "")
    again.reset(seed=1)
    assert again._seat is first, "a seat is used again"
    args = Path(f"/proc/{module.server().process.pid}/cmdline")
    assert not args.exists() or module.server().gateway.gateway_parameters.auth_token not in args.read_text()


def test_one_that_ended_is_replaced() -> None:
    game = TextGame("coin", "")
    game.reset(seed=0)
    before = module.server().process
    before.kill()
    before.wait()
    with pytest.raises(BackendUnavailable, match="the Java server has ended"):
        game.step("look around")
    other = TextGame("coin", "")
    assert other.reset(seed=0)[0].startswith("You are in the kitchen")
    assert module.server().process.pid != before.pid


def test_it_needs_its_token() -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway
    from py4j.protocol import Py4JError

    TextGame("coin", "").reset(seed=0)
    port = module.server().gateway.gateway_parameters.port
    with pytest.raises(Py4JError):
        JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm.System.getProperty("user.home")


def test_hosts_play_it() -> None:
    config = TextWorldExpressConfig(train_tasks=20, held_out_tasks=5)
    with EnvHosts(partial(agent_envs.make, "textworld_express", config), HostSettings(processes=1)) as hosts:
        one, other = hosts.make(), hosts.make()
        prompts = [env.reset(options={"task": "coin-train-3"})[0] for env in (one, other)]
        assert prompts[0] == prompts[1]
        assert one.step("ACT(look around)") == one.fork().step("ACT(look around)") == other.step("ACT(look around)")


def test_who_finds_a_server_gone_forgets_no_other_one() -> None:
    one, other = TextGame("coin", ""), TextGame("coin", "")
    one.reset(seed=0)
    other.reset(seed=1)
    first = module.server()
    first.process.kill()
    first.process.wait()
    with pytest.raises(BackendUnavailable, match="has ended"):
        one.step("look around")
    one = TextGame("coin", "")
    one.reset(seed=0)
    second = module.server()
    with pytest.raises(BackendUnavailable, match="has ended"):
        other.step("look around")
    assert module.server() is second is not first, "and starts no third one"


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module._server.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    hint = r"^textworld_express: java cannot be started \(No such file or directory\): install a Java runtime"
    with pytest.raises(SettingsError, match=hint):
        TextGame("coin", "").reset(seed=0)
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(BackendUnavailable, match="Java ended before the games were loaded"):
        TextGame("coin", "").reset(seed=0)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'turnwise\[textworld-express\]'"):
        TextGame("coin", "").reset(seed=0)
