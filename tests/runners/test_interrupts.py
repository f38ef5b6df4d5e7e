"""Ctrl-C and SIGTERM at named moments: one line, no traceback, no process, and no folder or one that resumes.

A program that is interrupted while it imports is started as a person would; the others begin warm.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import wrong_world
from run_cases import fingerprint, rows
from warm_programs import serving
from wrong_driver import things

pytestmark = pytest.mark.runs
HERE = Path(__file__).resolve().parent
WARM = [sys.executable, "-IS", str(HERE.parent / "warm_programs.py")]
COMPARE = "compare --config {w}/files/compare.yaml --out compared"
EVALUATE = "evaluate --model {w}/runs/good --tasks 8"
TRAIN = "train --config {w}/files/small.yaml --updates 2 --out run"


class Moment(NamedTuple):
    """When a program is interrupted, and what is then there."""

    signal: str
    where: str
    """MODULE:FUNCTION, or MODULE:import."""
    line: str = TRAIN
    nth: int = 1
    seconds: float = 0.0
    resumes: bool = False
    """The folder `run` is there, and goes on."""
    says: str = "error: interrupted"


def stops(signal: str, where: str, nth: int = 1, line: str = TRAIN, seconds: float = 0.0) -> Moment:
    return Moment(signal, where, line, nth, seconds, True, f"stopped by {signal} after update")


STEP, PLAY = "runners.training.learner:Learner.step", "runners.workers.controller:Controller.play"
MEASURE = "runners.training.measuring:evaluate_tasks"
MOMENTS = {
    "imports": Moment("SIGINT", "torch._C:import"),
    "imports, SIGTERM": Moment("SIGTERM", "transformers.modeling_utils:import"),
    "imports of settings": Moment("SIGINT", "tyro:import"),
    "settings": Moment("SIGINT", "runners.settings.run_settings:parse"),
    "cloning": Moment("SIGINT", "runners.cloning.tiny_model:fit", TRAIN + " --pretrain.steps 61"),
    "cloning, SIGTERM": Moment("SIGTERM", "runners.cloning.tiny_model:fit", TRAIN + " --pretrain.steps 61"),
    "loading": Moment("SIGINT", "runners.training.run:load_base"),
    "start of workers": Moment(
        "SIGINT", "runners.workers.process:ProcessWorkers.start", TRAIN + " --workers 2", 1, 1.0
    ),
    "first measurement": stops("SIGINT", MEASURE),
    "first rollout": stops("SIGINT", PLAY, 3),
    "rollout in a worker": stops("SIGINT", PLAY, 3, TRAIN + " --workers 1", 0.1),
    "update": stops("SIGINT", STEP, 2),
    "update, SIGTERM": stops("SIGTERM", STEP, 3),
    "last measurement": stops("SIGINT", MEASURE, 3),
    "checkpoint": stops("SIGINT", "runners.run_folder.checkpoint:flush", 12),
    "page": Moment("SIGINT", "runners.viewer.build:build"),
    "evaluate": Moment(
        "SIGINT",
        "runners.inference.program:evaluate_tasks",
        "evaluate --model {w}/runs/good --tasks 8 --out figures.json",
        2,
    ),
    "evaluate, loading": Moment(
        "SIGTERM", "runners.loading.base_model:load_base", "evaluate --model {w}/runs/good --tasks 8"
    ),
    "credit": Moment(
        "SIGINT", "runners.crediting.program:credited", "credit --model {w}/runs/good --episodes 16 --out credit"
    ),
    "view": Moment("SIGINT", "runners.viewer.build:index_episodes", "view {w}/runs/good --out page.html"),
    "compare runs a child": Moment(
        "SIGINT", "runners.comparison.processes:time.sleep", COMPARE, 30, 0.0, says="error: stopped by SIGINT: the same"
    ),
    "pretrain": Moment(
        "SIGINT", "runners.cloning.tiny_model:build_tokenizer", "pretrain --env identity --pretrain.steps 62"
    ),
    "list": Moment("SIGINT", "runners.list_parts:show", "list"),
    "doctor": Moment("SIGINT", "runners.doctor:findings", "doctor"),
}


class Ended(NamedTuple):
    status: int
    err: str
    group: list[int]
    """Processes of its group that are left."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    w = tmp_path_factory.mktemp("world")
    wrong_world.build(w, w / "cache")
    with serving(w / "socket", Path(sys.executable), {**os.environ, "PYTHONPATH": str(HERE.parents[1])}):
        yield w


def run(w: Path, place: Path, *words: str, warm: bool = False) -> Ended:
    start = [*WARM, str(w / "socket")] if warm else [sys.executable]
    command = [*start, *(word.replace("{w}", str(w)) for word in words)]
    env = {**os.environ, "TURNWISE_CACHE": str(w / "cache"), "PYTHONPATH": str(HERE.parents[1]), "TMPDIR": str(place)}
    with subprocess.Popen(
        command, cwd=place, env=env, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        _, err = process.communicate(timeout=240)
    return Ended(process.returncode, err, left_of(place))


def left_of(place: Path) -> list[int]:
    """Processes that work in the folder, a second later at the latest."""
    for _ in range(20):
        found = [p for p in Path("/proc").glob("[0-9]*") if _cwd(p).startswith(str(place))]
        if not found:
            return []
        time.sleep(0.05)
    return [int(p.name) for p in found]


def _cwd(process: Path) -> str:
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""


def cached(w: Path) -> set[Path]:
    return {path for path in things([w / "cache"]) if path.suffix != ".lock"}


@pytest.mark.parametrize("name", MOMENTS)
def test_a_program_that_is_interrupted_ends_with_one_line(name: str, world: Path, tmp_path: Path) -> None:
    at, before = MOMENTS[name], cached(world)
    number = {"SIGINT": 2, "SIGTERM": 15}[at.signal]
    ended = run(
        world,
        tmp_path,
        str(HERE / "interrupted.py"),
        at.signal,
        at.where,
        str(at.nth),
        str(at.seconds),
        *at.line.split(),
        warm=not at.where.endswith(":import"),
    )
    assert ended.status == (2 if at.line == COMPARE else 128 + number) and ended.group == [], ended
    *before_it, line = ended.err.splitlines()
    assert line.startswith(at.says), ended.err
    assert all(said.startswith("tiny model: ") for said in before_it), ended.err  # pretrain's standard output is a path
    assert cached(world) == before
    left = {path.name for path in tmp_path.iterdir()}
    kept = {COMPARE: {"compared"}}.get(at.line, {"run"} if at.resumes or name == "page" else set())
    assert left == kept
    if at.resumes:
        resumed = run(world, tmp_path, str(HERE.parents[1] / "runners" / "train.py"), "--resume", "run", warm=True)
        assert resumed.status == 0, resumed.err
        assert everything(tmp_path / "run") == everything(world / "runs" / "good")


def everything(folder: Path) -> tuple[object, ...]:
    summary = {k: v for k, v in json.loads((folder / "summary.json").read_text()).items() if k != "seconds"}
    records = [(folder / name).read_text() for name in ("episodes.jsonl", "ledger.jsonl")]
    return fingerprint(folder), rows(folder), records, summary


def test_a_program_that_is_not_interrupted_is_seen(world: Path, tmp_path: Path) -> None:
    ended = run(world, tmp_path, str(HERE / "interrupted.py"), "SIGINT", STEP, "1", "0", "list")
    assert ended.status == 0 and ended.err == ""


@pytest.mark.parametrize("says", ["raise", "fork"])
def test_a_traceback_and_a_process_that_stays_are_seen(says: str, world: Path, tmp_path: Path) -> None:
    codes = {
        "raise": "raise KeyboardInterrupt",
        "fork": "import subprocess as s; s.Popen(['sleep', '4'], stdout=-3, stderr=-3)",
    }
    ended = run(world, tmp_path, "-c", codes[says])
    assert ("Traceback" in ended.err) == (says == "raise") and bool(ended.group) == (says == "fork")
