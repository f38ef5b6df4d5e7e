"""The fault protocol: random ``kill -9``, each followed by ``--resume``, end like the run that nobody killed.

    TURNWISE_ALL_KILLS=1 python -m pytest -q tests/long/test_kills.py

kills fifty times, which takes some minutes; without the variable, as in `.ci/run`, sixteen times.
"""

import contextlib
import io
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "runners"))
from run_cases import SMALL, fingerprint, rows

from runners.run_folder import checkpoint
from runners.train import begin
from runners.training.learner import Learner
from runners.training.run import Training
from runners.training.stream import TaskStream

KILLS, EACH = (50, 8) if os.environ.get("TURNWISE_ALL_KILLS") else (16, 3)
"""Kills in all, and at least in each phase."""
SETTINGS = SMALL.replace("updates: 4", "updates: 12").replace("episodes: 16", "episodes: 24")


class Phase(IntEnum):
    ROLLOUT = 1
    UPDATE = 2
    EVALUATION = 3
    CHECKPOINT = 4


def train(argv: list[str], now: Any, entered: Any, forget: str | None) -> None:
    """The program, in a process that is to be killed; it says what it is doing in shared memory."""
    import torch
    from rich.console import Console

    torch.set_num_threads(1)
    for phase, owner, name in (
        (Phase.EVALUATION, Training, "evaluate"),
        (Phase.UPDATE, Learner, "learn"),
        (Phase.CHECKPOINT, checkpoint, "write"),
    ):
        setattr(owner, name, watched(getattr(owner, name), phase, now, entered))
    patch(forget)
    with begin(argv, Console(file=io.StringIO())) as run:
        run.controller.play = during_updates(run, now, entered)  # type: ignore[method-assign]
        run.run()


def watched(call: Callable[..., Any], phase: Phase, now: Any, entered: Any) -> Callable[..., Any]:
    def inside(*arguments: Any, **options: Any) -> Any:
        before, now.value = now.value, phase
        entered[phase] += 1
        try:
            return call(*arguments, **options)
        finally:
            now.value = before

    return inside


def during_updates(run: Training, now: Any, entered: Any) -> Callable[..., Any]:
    play = run.controller.play
    rollout = watched(play, Phase.ROLLOUT, now, entered)
    return lambda *jobs, **options: play(*jobs, **options) if "on_end" in options else rollout(*jobs, **options)


def patch(forget: str | None) -> None:
    """Takes a part of the state away from what a resume reads."""
    load = TaskStream.load
    if forget == "optimizer":
        Learner.load_tensors = lambda self, tensors: None  # type: ignore[method-assign]
    elif forget == "rng":
        TaskStream.load = lambda self, state: load(self, {**state, "rng": self.before})  # type: ignore[method-assign]
    elif forget == "cursor":
        TaskStream.load = lambda self, state: load(self, {**state, "at": 0})  # type: ignore[method-assign]


class Runner:
    """Starts runs from a warm process, so that a start costs no import, and kills them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["test_kills", "runners.train"])
        (place / "settings.yaml").write_text(SETTINGS)

    def start(self, folder: Path, forget: str | None = None) -> tuple[Any, Any, Any]:
        fresh = not folder.exists()
        argv = (
            ["--config", str(self.place / "settings.yaml"), "--out", str(folder)]
            if fresh
            else ["--resume", str(folder)]
        )
        now, entered = self.context.Value("i", 0, lock=False), self.context.Array("i", len(Phase) + 1, lock=False)
        process = self.context.Process(target=train, args=(argv, now, entered, forget))
        process.start()
        return process, now, entered

    def finish(self, folder: Path, forget: str | None = None) -> None:
        process, _, _ = self.start(folder, forget)
        process.join(300)
        assert process.exitcode == 0

    def kill(self, folder: Path, phase: Phase, rng: random.Random) -> Phase | None:
        """Kills a run at a random moment of some later ``phase``; the phase it was in, None if it had ended."""
        # Before the first checkpoint is whole there is nothing to go on from.
        wanted = rng.randint(1, 3) if checkpoint.checkpoints(folder / "checkpoints") else rng.randint(2, 3)
        process, now, entered = self.start(folder)
        pause = rng.random() * (0.02 if phase is Phase.CHECKPOINT else 0.2)
        while process.is_alive() and not (entered[phase] >= wanted and now.value == phase):
            time.sleep(0.0005)
        time.sleep(pause)
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        if process.exitcode == 0:
            return None
        assert process.exitcode == -signal.SIGKILL
        return Phase(now.value) if now.value else None


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    place = tmp_path_factory.mktemp("kills")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TURNWISE_CACHE", str(place / "cache"))
        environment.setenv("OMP_NUM_THREADS", "1")
        environment.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        yield Runner(place)
    left = [pid for pid in started_below(place) if pid != os.getpid()]
    until = time.monotonic() + 10
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left = [pid for pid in left if pid in started_below(place)]
    assert not left, "processes of environments outlived their run"


def started_below(place: Path) -> list[int]:
    """Hosts of environments whose cache is that of this test."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            ours = entry.name.isdecimal() and str(place).encode() in (entry / "environ").read_bytes()
            if ours and b"agent_envs.isolation.host" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def whole(runner: Runner) -> Path:
    folder = runner.place / "whole"
    runner.finish(folder)
    return folder


def episode_ids(folder: Path) -> list[Any]:
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return [(line["update"], line["task"], line["sample"], line["attempt"]) for line in lines]


def test_kills_in_every_phase(runner: Runner, whole: Path) -> None:
    rng = random.Random(0)
    phases: Counter[Phase] = Counter()
    runs = 0
    while sum(phases.values()) < KILLS or min(phases[phase] for phase in Phase) < EACH:
        assert runs < 30, f"after {runs} runs only {dict(phases)}"
        folder = runner.place / f"run-{runs}"
        runs += 1
        for _ in range(rng.randint(4, 9)):
            rarest = min(Phase, key=lambda phase: (phases[phase], rng.random()))
            if (folder / "summary.json").exists():
                break
            hit = runner.kill(folder, rarest, rng)
            if hit is not None:
                phases[hit] += 1
            for saved in checkpoint.checkpoints(folder / "checkpoints"):
                checkpoint.verify(saved)
        if not (folder / "summary.json").exists():
            runner.finish(folder)
        assert fingerprint(folder) == fingerprint(whole)
        assert episode_ids(folder) == episode_ids(whole)
        assert rows(folder) == rows(whole)
        assert (folder / "ledger.jsonl").read_text() == (whole / "ledger.jsonl").read_text()
    print(f"{sum(phases.values())} kills: " + ", ".join(f"{p.name.lower()} {phases[p]}" for p in Phase))


@pytest.mark.parametrize("forget", ["optimizer", "rng", "cursor"])
def test_without_a_part_of_the_state_the_end_is_another(runner: Runner, whole: Path, forget: str) -> None:
    folder = runner.place / f"without-{forget}"
    process, now, entered = runner.start(folder)
    while process.is_alive() and not (entered[Phase.UPDATE] >= 8 and now.value == Phase.ROLLOUT):
        time.sleep(0.0005)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    runner.finish(folder, forget)
    assert fingerprint(folder) != fingerprint(whole)
