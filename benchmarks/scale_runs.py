"""Real runs for `scale_sim`: what they took, the constants of the simulation from two of them, and what it predicts.

Invariant: the constants and the turns come from runs with one worker and no staleness alone. Every other run is
predicted from them and measured afterwards.
"""

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import save

from agent_envs import registry
from agents.engine.base import SamplingSettings
from agents.model.actor_critic import ActorCritic
from agents.tree.episode import Job
from benchmarks.scale_events import Begun, Costs, Portion, Setup, Turns, TurnsOf, played, simulate
from benchmarks.timed_envs import LOG, installed, logged
from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json
from runners.loading.base_model import load_base
from runners.run_folder.runs import base_of
from runners.settings.run_settings import read_settings
from runners.workers.base import PlaySpec
from runners.workers.process import ProcessWorkers
from runners.workers.serve import WorkerSetup

ROOT = Path(__file__).resolve().parent.parent
COMMON = """
algo: ppo
minibatches: 2
eval_every: 0
test_tasks: 0
"""
WAITING = """
env: waiting
react: {max_action_tokens: 16, max_tokens: 256}
waiting: {length: 4}
pretrain: {flaw: 0.2, demonstrations: 300, steps: 200, shape: {width: 64, mlp: 128}}
"""
CODE = """
env: timed_code
react: {max_action_tokens: 96, max_tokens: 2048}
timed_code: {levels: [1], turns: 8}
pretrain: {flaw: 0.5, demonstrations: 400, steps: 300, shape: {width: 128, mlp: 256}}
"""
CONTROLS = ("without the longest wait", "with one worker", "without staleness")
"""The prediction with a part of the model taken out: it must be far off."""
SLOWEST = 3600
"""Seconds of a run; on two idle cores the longest takes two minutes."""


@dataclass(frozen=True)
class RealRun:
    """A run of the trainer, and what its updates took once it was warm, in seconds."""

    setup: Setup
    update: Sequence[float]
    """From the end of the update before."""
    rollout: Sequence[float]
    """Of it, until all episodes were there."""
    load: float
    """Load of the machine when the run began."""

    @property
    def seconds(self) -> float:
        """Mean of an update."""
        return statistics.fmean(self.update)

    @property
    def learner(self) -> float:
        """Seconds of an update in which the learner worked; it waits during all of the rest."""
        return self.seconds - statistics.fmean(self.rollout)


@dataclass(frozen=True)
class Played:
    """A run with the turns of its batches."""

    run: RealRun
    turns: Sequence[Sequence[Turns]]
    """Batch → the turns of its episodes, in the order of the tasks."""

    def turns_of(self, batch: int, wanted: int) -> Sequence[Turns]:
        """Those of a batch; after the last one they begin again."""
        return self.turns[(batch - 1) % len(self.turns)][:wanted]


def train(setup: Setup, text: str, folder: Path, flags: Sequence[str] = ()) -> Played:
    """Runs the trainer, with a warm update at least; a run that has ended in ``folder`` is read and not repeated.

    Raises UserError with the trainer's last line where it fails, and where the folder holds another run.
    """
    values = {
        "updates": setup.updates, "episodes": setup.episodes, "slots": setup.portion, "workers": setup.workers,
        "staleness": setup.staleness, "envs.processes": setup.portion,
    }  # fmt: skip
    argv = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    argv += ["--exact" if setup.exact else "--no-exact", *flags]
    load = _ended(folder, argv, text)
    if load is None:
        load = _train(folder, argv, text)
    counted = _updates(folder / "run")[setup.warm - 1 :]
    since = [row["seconds"] - earlier["seconds"] for earlier, row in pairwise(counted)]
    run = RealRun(setup, since, [row["seconds_rollout"] for row in counted[1:]], load)
    return Played(run, _batches(folder / "run", logged(folder / "turns")))


def _ended(folder: Path, argv: Sequence[str], text: str) -> float | None:
    """The load before the run that has ended in ``folder``; None where there is none. Raises UserError."""
    try:
        known = json.loads((folder / "ended.json").read_text("utf-8"))
    except FileNotFoundError:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    if (known["argv"], known["text"]) != (argv, text):
        raise UserError(f"{folder} holds a run with other settings: name another folder with --keep")
    return float(known["load"])


def _train(folder: Path, argv: Sequence[str], text: str) -> float:
    """Runs the trainer and returns the load before it."""
    (log := folder / "turns").mkdir(parents=True)
    (settings := folder / "settings.yaml").write_text(COMMON + text, "utf-8")
    path = [str(ROOT), str(installed(folder / "package")), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", LOG: str(log.resolve())}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    load = os.getloadavg()[0]
    program = [sys.executable, str(ROOT / "runners" / "train.py"), "--config", str(settings), "--out"]
    command = [*program, str(folder / "run"), *argv]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SLOWEST)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise UserError(f"the run in {folder} failed: {''.join(last)}")
    (folder / "ended.json").write_text(dump_json({"argv": argv, "text": text, "load": load}), "utf-8")
    return load


def _updates(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "update"]


def _batches(folder: Path, turns: Mapping[str, Sequence[float]]) -> list[list[Turns]]:
    """The turns of every update's episodes, in the order in which they were dispatched."""
    lines = (folder / "ledger.jsonl").read_text("utf-8").splitlines()
    sent = [row for row in map(json.loads, lines) if row["event"] == "dispatched"]
    tasks = [task for row in sent for task, *_ in row["episodes"]]
    if len(set(tasks)) < len(tasks):
        raise UserError("the runs are so long that tasks come twice: lower --updates or --episodes")
    return [[[round(s, 5) for s in turns.get(task, ())] for task, *_ in row["episodes"]] for row in sent]


def calibrated(small: Played, large: Played, sync: float) -> Costs:
    """The constants of the simulation, by two runs with one worker and equally many portions of two sizes.

    rollout = sync + portions (portion + longest wait) + episodes × episode; learner = update + episodes × learned.
    """
    a, b = small.run.setup, large.run.setup
    portions = -(-a.episodes // a.portion)
    if -(-b.episodes // b.portion) != portions or a.episodes == b.episodes:
        raise ValueError("the two runs need as many portions, of two sizes")
    own = [statistics.fmean(each.run.rollout) - sync - waited(each) for each in (small, large)]
    episodes = (a.episodes, b.episodes)
    all_portions, episode = line(episodes, own)
    update, learned = line(episodes, (small.run.learner, large.run.learner))
    return Costs(all_portions / portions, episode, sync, update, learned)


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """(c, d) of the line y = c + d x nearest to two points, in squares, among those with c and d of at least 0."""
    d = (y[1] - y[0]) / (x[1] - x[0])
    c = y[0] - d * x[0]
    if d < 0:
        c, d = statistics.fmean(y), 0.0
    elif c < 0:
        c, d = 0.0, sum(i * j for i, j in zip(x, y, strict=True)) / sum(i * i for i in x)
    return max(0.0, c), max(0.0, d)


def waited(run: Played) -> float:
    """Seconds of an update that its portions wait for their environments, in one worker."""
    setup = run.run.setup
    counted = run.turns[setup.warm : setup.updates]
    portions = [batch[i : i + setup.portion] for batch in counted for i in range(0, len(batch), setup.portion)]
    return sum(_wait(portion, setup.exact) for portion in portions) / len(counted)


def _wait(turns: Sequence[Turns], exact: bool) -> float:
    return played(Portion(0, 0, [Begun(t, 0) for t in turns], len(turns)), exact)[0]


def predicted(setup: Setup, costs: Costs, turns_of: TurnsOf) -> Mapping[str, float]:
    """Seconds of an update: as simulated, and as each control has it, from which one part of the model was taken."""

    def means(batch: int, wanted: int) -> Sequence[Turns]:
        episodes = turns_of(batch, wanted)
        return [[statistics.fmean(map(sum, episodes))]] * len(episodes)

    without = (
        simulate(setup, costs, means),
        simulate(replace(setup, workers=1), costs, turns_of),
        simulate(replace(setup, staleness=0), costs, turns_of),
    )
    seconds = [found.seconds_update for found in (simulate(setup, costs, turns_of), *without)]
    return dict(zip(("simulated", *CONTROLS), seconds, strict=True))


def sync_seconds(console: Console, rounds: int = 10) -> float:
    """Median by which one episode takes longer where its worker has to load a policy first."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "settings.yaml").write_text(
            COMMON + WAITING.replace("waiting:", "identity:").replace("env: waiting", "env: identity"), "utf-8"
        )
        run = read_settings(["--config", str(file), "--slots", "1"])
    base = base_of(run, console, "cpu")
    adapter = save(dict(ActorCritic(load_base(base).model, run.lora, critic=None).policy_state()))
    job = Job(registry.make("identity", run.only_env("scale_sim")[1]).tasks("train")[0])
    workers = ProcessWorkers(WorkerSetup(base, run.lora, run.play()), 1)
    try:
        workers.start()
        times: list[float] = []
        for i in range(2 * (rounds + 1)):
            started = time.perf_counter()
            if i % 2 == 0:
                workers.load(i // 2, adapter, hashlib.sha256(adapter).hexdigest())
            workers.submit(PlaySpec((job,), SamplingSettings()), i // 2).result()
            times.append(time.perf_counter() - started)
    finally:
        workers.close()
    return statistics.median(max(0.0, new - old) for new, old in zip(times[2::2], times[3::2], strict=True))


def from_plain(found: Mapping[str, Any]) -> Played:
    """A run of a result file, with its turns."""
    run = found["run"]
    return Played(RealRun(**{**run, "setup": Setup(**run["setup"])}), found["turns"])
