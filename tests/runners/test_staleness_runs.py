"""Whole runs whose rollouts are played ahead: reproducible, at once with learning, and accounted for when they stop."""

import io
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from run_cases import fingerprint, rows, training

from runners.train import begin
from runners.training.interrupts import Stopped
from runners.training.run import Training

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("own_cache")]


def records(folder: Path) -> tuple[object, ...]:
    return fingerprint(folder), rows(folder), *((folder / n).read_text() for n in ("episodes.jsonl", "ledger.jsonl"))


def events(folder: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    found: dict[str, Counter[tuple[Any, ...]]] = {}
    for line in map(json.loads, (folder / "ledger.jsonl").read_text().splitlines()):
        found.setdefault(line["event"], Counter()).update(map(tuple, line["episodes"]))
    return found


def lags(folder: Path) -> list[int]:
    lines = map(json.loads, (folder / "episodes.jsonl").read_text().splitlines())
    return [line["update"] - 1 - turn["version"] for line in lines for turn in line["turns"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("whole") / "run"
    with training(folder, "--staleness", "1", "--workers", "1", "--slots", "8") as run:
        run.run()
    return folder


def test_the_same_run_whatever_the_timing(tmp_path: Path, whole: Path) -> None:
    with training(tmp_path / "two", "--staleness", "1", "--workers", "2", "--slots", "8") as run:
        learn = run.learner.learn

        def slow(*arguments: Any) -> Any:
            time.sleep(0.5)
            return learn(*arguments)

        run.learner.learn = slow  # type: ignore[method-assign]
        run.run()
    with training(tmp_path / "sync", "--workers", "1", "--slots", "8") as run:
        run.run()
    assert records(tmp_path / "two") == records(whole)
    assert fingerprint(tmp_path / "sync") != fingerprint(whole), "old episodes teach something else"
    assert set(lags(whole)) == {0, 1} and set(lags(tmp_path / "sync")) == {0}
    assert [r["lag"] for r in rows(whole) if r["kind"] == "update"] == [0, 1, 1, 1]


def test_the_next_episodes_are_played_while_an_update_learns(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--staleness", "1", "--workers", "1", "--test-tasks", "0") as run:
        learn, seen = run.learner.learn, []

        def watched(*arguments: Any) -> Any:
            seen.extend([len(f.result(60).outcomes) for f in batch.futures] for batch in run.rollouts.ahead)
            return learn(*arguments)

        run.learner.learn = watched  # type: ignore[method-assign]
        run.run()
    assert seen == [[16], [16], [16]], "none after the last update"


@pytest.mark.parametrize("staleness", ["1", "2"])
def test_a_stopped_run_trains_every_episode_once(tmp_path: Path, staleness: str) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Stopped), training(folder, "--staleness", staleness, "--workers", "1") as run:
        stop_in(run, 2)
        run.run()
    with begin(["--resume", str(folder)], Console(file=io.StringIO())) as run:
        run.run()
    found = events(folder)
    assert found["dispatched"] == found["trained"], "each once, and none is lost"
    assert set(found["dispatched"].values()) == {1} and len(found["dispatched"]) == 4 * 16
    assert 0 < len(found["dispatched again"]) <= 16 * int(staleness)
    assert max(lags(folder)) <= int(staleness)


def stop_in(run: Training, update: int) -> None:
    step = run.learner.step

    def watched(loss: torch.Tensor) -> tuple[float, bool]:
        if run.update + 1 == update:
            run.learner.step = step  # type: ignore[method-assign]
            os.kill(os.getpid(), signal.SIGTERM)
        return step(loss)

    run.learner.step = watched  # type: ignore[method-assign]


def test_what_was_played_ahead_of_the_last_environment_step_is_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with training(folder, "--staleness", "1", "--workers", "1", "--env-steps", "60", "--test-tasks", "0") as run:
        run.run()
    found = events(folder)
    assert found["dispatched"] == found["trained"] + found["dropped"]
    assert len(found["dropped"]) == 16
