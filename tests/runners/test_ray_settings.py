"""What is refused before a Ray cluster is joined or started, and what clears up after one. Needs no Ray."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_envs.plugins import missing_extra
from runners.command_line.errors import UserError
from runners.settings.ray_settings import RaySettings
from runners.settings.run_settings import read_settings
from runners.workers import ray_guard
from runners.workers.registry import WORKERS


def test_its_flags_are_there_with_it_and_only_with_it() -> None:
    found = read_settings(["--workers", "ray:3", "--ray.address", "10.0.0.1:6379", "--ray.gpus", "0.5"])
    assert found.train.backend == ("ray", 3) and found.ray == RaySettings("10.0.0.1:6379", 1.0, 0.5)
    assert found.plain()["ray"] == {"address": "10.0.0.1:6379", "cpus": 1.0, "gpus": 0.5}
    assert read_settings(["--workers", "2"]).ray is None
    with pytest.raises(UserError, match=r"unknown flag --ray.gpus"):
        read_settings(["--workers", "2", "--ray.gpus", "1"])


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--ray.cpus", "-1"], r"--ray.cpus must be from 0 to 1024, not -1"),
        (["--ray.gpus", "65"], r"--ray.gpus must be from 0 to 64, not 65"),
        (["--ray.address", "ray://head:10001"], r"--ray.address must be HOST:PORT of a cluster, not 'ray://"),
        (["--ray.address", "auto"], r"--ray.address must be HOST:PORT of a cluster, not 'auto'"),
    ],
)
def test_settings_out_of_range_are_refused(argv: Sequence[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_settings(["--workers", "ray:2", *argv])


def test_a_number_of_workers_is_needed() -> None:
    with pytest.raises(UserError, match="must be a number, or NAME:NUMBER"):
        read_settings(["--workers", "ray"])


def test_without_the_extra_it_is_said_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_envs.plugins.find_spec", lambda name: None if name == "ray" else util.find_spec(name))
    assert missing_extra(WORKERS.get("ray")) == "not installed: pip install 'turnwise[ray]'"
    assert missing_extra(WORKERS.get("process")) == ""


@pytest.mark.parametrize("version, refused", [("2.59.1", True), ("1.13.0", True), ("2.60.0", False), ("2.61.0", False)])
def test_an_older_ray_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, version: str, refused: bool) -> None:
    from runners.workers import ray_cluster

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__=version))
    if not refused:
        assert ray_cluster._imported().__version__ == version
        return
    with pytest.raises(UserError, match=rf"tested with Ray 2.60 and later, and {version} is installed: pip install"):
        ray_cluster._imported()


def test_a_ray_that_was_imported_before_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would listen on every interface, without a token."""
    from runners.workers import ray_cluster

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__="2.60.0"))
    ray_cluster.token.cache_clear()
    with pytest.raises(UserError, match="Ray was imported before"):
        ray_cluster.RayCluster(RaySettings(), 1).open()


def test_an_address_where_nobody_is_is_refused_at_once() -> None:
    from runners.workers.ray_cluster import RayCluster

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(UserError, match=rf"nobody answers at --ray.address 127.0.0.1:{port}: .*refused"):
        RayCluster(RaySettings(f"127.0.0.1:{port}"), 1).open()
    assert time.monotonic() - started < 10


def sleeper(folder: Path, marked: bool) -> "subprocess.Popen[bytes]":
    env = {**os.environ, **({ray_guard.MARK: str(folder)} if marked else {})}
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=env)


def test_the_guard_removes_a_cluster_when_the_run_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "session").write_text("log")
    code = "import subprocess as s, sys, time; g = s.Popen(sys.argv[1:], stdin=-1); print(flush=True); time.sleep(60)"
    run = subprocess.Popen(
        [sys.executable, "-c", code, sys.executable, "-I", ray_guard.__file__, str(folder)], stdout=-1
    )
    assert run.stdout is not None and run.stdout.readline() == b"\n"
    mine, other = sleeper(folder, True), sleeper(folder, False)
    with (folder / "log").open("w") as log:
        writer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=log)
    try:
        wait(lambda: set(ray_guard.marked(str(folder))) >= {mine.pid, writer.pid})
        assert folder.exists() and mine.poll() is None, "while the run lives nothing is touched"
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        wait(lambda: not folder.exists())
        assert mine.wait(5) == writer.wait(5) == -signal.SIGKILL and other.poll() is None
    finally:
        for process in (run, mine, other, writer):
            process.kill()
            process.wait()


def wait(over: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not over():
        assert time.monotonic() < until
        time.sleep(0.02)
