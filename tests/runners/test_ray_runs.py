"""Whole runs on Ray: bit-identical to runs without it, through every kill, and nothing is left of their clusters."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest
from run_cases import SMALL, fingerprint, rows, training
from worker_contract import alive

from runners.workers import ray_guard

ABSENT = find_spec("ray") is None and not os.environ.get("CI")
T = TypeVar("T")
pytestmark = [
    pytest.mark.runs,
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.skipif(ABSENT, reason="needs the extra ray"),
]
HERE = Path(__file__).resolve().parent
TRAIN = HERE.parents[1] / "runners" / "train.py"


def everything(folder: Path) -> tuple[object, ...]:
    summary = {k: v for k, v in json.loads((folder / "summary.json").read_text()).items() if k != "seconds"}
    records = [(folder / name).read_text() for name in ("episodes.jsonl", "ledger.jsonl")]
    return fingerprint(folder), rows(folder), records, summary


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    folder: Path = tmp_path_factory.mktemp("whole") / "run"
    with training(folder) as run:
        run.run()
    return folder


class Run:
    """A run in a process of its own, which leads a process group as in a terminal."""

    def __init__(self, folder: Path, *argv: str, **variables: str) -> None:
        self.folder = folder
        self.place = Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
        """Where it makes its temporary files; Ray needs a short path."""
        if folder.exists():
            argv = ("--resume", str(folder))
        else:
            (folder.parent / "small.yaml").write_text(SMALL)
            argv = ("--config", str(folder.parent / "small.yaml"), "--out", str(folder), *argv)
        own = {"PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1", "TMPDIR": str(self.place)}
        env = {**os.environ, **own, **variables}
        self.process = subprocess.Popen(
            [sys.executable, str(TRAIN), *argv], env=env, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said = ""

    def cluster(self) -> Path:
        """The folder of its cluster."""
        return until(lambda: next(self.place.glob("turnwise-ray-*"), None))

    def processes(self, name: str) -> list[int]:
        return [pid for pid in ray_guard.marked(str(self.cluster())) if name in line_of(pid)]

    def reached(self, update: int) -> None:
        """Waits until an update's episodes are being played."""
        until(lambda: f'"update": {update}' in text_of(self.folder / "ledger.jsonl") or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()[0]

    def end(self) -> int:
        self.said, _ = self.process.communicate(timeout=400)
        return self.process.returncode


def until(look: Callable[[], T | None], seconds: float = 240.0) -> T:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
    return found


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def line_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@contextmanager
def nothing_left(run: Run) -> Iterator[None]:
    """What a run's cluster was made of is gone soon after the run."""
    folder = run.cluster()
    until(lambda: run.processes("runners.workers.serve"))
    there = ray_guard.marked(str(folder))
    assert len(there) > 5
    yield
    until(lambda: not folder.exists() and not ray_guard.marked(str(folder)), 30)
    assert not any(map(alive, there)) and not any(run.place.iterdir())
    run.place.rmdir()
    assert not (Path.home() / ".ray" / "auth_token").exists()


def test_a_run_is_interrupted_and_killed_with_its_workers_and_ends_like_one_that_was_not(
    tmp_path: Path, whole: Path
) -> None:
    folder, rng = tmp_path / "run", random.Random(0)
    run = Run(folder, "--workers", "ray:2")
    with nothing_left(run):
        run.reached(1)
        os.killpg(run.process.pid, signal.SIGINT)  # Ctrl-C reaches all that the terminal started
        assert run.end() == 130 and "stopped by SIGINT after update" in run.said, run.said

    run = Run(folder)
    with nothing_left(run):
        os.kill(rng.choice(run.processes("ray::WorkerActor")), signal.SIGKILL)  # before it has played anything
        run.reached(2)
        os.kill(rng.choice(run.processes("runners.workers.serve")), signal.SIGKILL)
        time.sleep(rng.random())
        os.kill(run.process.pid, signal.SIGKILL)
        assert run.end() == -signal.SIGKILL

    run = Run(folder)
    with nothing_left(run):
        run.reached(3)
        os.kill(rng.choice(run.processes("ray::WorkerActor")), signal.SIGKILL)
        assert run.end() == 0, run.said
    assert everything(folder) == everything(whole)


def test_a_node_that_is_lost_costs_nothing_but_time(tmp_path: Path, whole: Path) -> None:
    place = Path(tempfile.mkdtemp(prefix="nodes-", dir="/tmp"))
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "1" * 64, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    nodes = subprocess.Popen(
        [sys.executable, str(HERE / "ray_nodes.py"), str(place)], env={**os.environ, **variables},
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert nodes.stdin is not None and nodes.stdout is not None
    try:
        address = nodes.stdout.readline().strip()
        assert address
        run = Run(tmp_path / "run", "--workers", "ray:2", "--ray.address", address, **variables)
        run.reached(1)
        nodes.stdin.write("kill\n")
        nodes.stdin.flush()
        assert nodes.stdout.readline() == "2\n", "both nodes had a worker"
        assert run.end() == 0, run.said
        assert f"on 2 nodes of the Ray cluster at {address}" in run.said
        assert everything(tmp_path / "run") == everything(whole)
        assert not any(run.place.iterdir()), "it started no cluster of its own"
    finally:
        nodes.communicate(timeout=60)
        ray_guard.clear(str(place), os.getpid())
