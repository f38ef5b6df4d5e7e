"""A small run on the identity environment: a demonstrator that is wrong in half of the turns, cloned in a second."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agents.engine import SamplingSettings
from agents.tree.episode import Job
from agents.tree.merge import Tree, grow
from runners.command_line.plain import dump_json
from runners.run_folder.checkpoint import checkpoints
from runners.run_folder.runs import BASE, CONFIG
from runners.settings.run_settings import RunSettings, read_settings
from runners.training.learner import Learner
from runners.training.run import Training

SMALL = """
env: identity
updates: 4
episodes: 16
minibatches: 2
eval_every: 2
eval_tasks: 8
test_tasks: 8
react: {max_action_tokens: 16, max_tokens: 256}
envs: {processes: 1}
pretrain:
  {flaw: 0.5, demonstrations: 100, steps: 60, shape: {width: 64, mlp: 128}}
"""
TIMES = {"seconds", "seconds_rollout", "seconds_env", "seconds_forward", "seconds_update", "sampled_tokens_per_s"}
TIMES |= {"seconds_judge", "seconds_continuations", "seconds_other", "seconds_processor"}
TIMES |= {"uncounted_seconds", "uncounted_processor"}


def settings(folder: Path, *argv: str, text: str = SMALL) -> RunSettings:
    """The settings of a run, as the program would read them."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.parent / f"{folder.name}.yaml"
    file.write_text(text)
    return read_settings(["--config", str(file), *argv])


def training(folder: Path, *argv: str, text: str = SMALL) -> Training:
    """A run in a fresh folder, as ``train.py`` would begin it."""
    run = Training(settings(folder, *argv, text=text), folder, Console(file=io.StringIO()))
    (folder / CONFIG).write_text(run.settings.written())
    (folder / BASE).write_text(dump_json({"source": run.source, "fingerprint": run.reference}))
    (folder / "versions.json").write_text("{}")
    return run


def jobs(run: Training) -> list[Job]:
    """What the run's next update would play."""
    return run.jobs(run.rollouts.tasks)


def played(run: Training) -> list[Tree]:
    """What the run's next update would learn from, without forks or a search."""
    run.controller.load(0, run.model.policy_state())
    return grow(run.controller.play(jobs(run), SamplingSettings()).episodes)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run without what the clock decides."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in e.items() if k not in TIMES} for e in entries]


def fingerprint(folder: Path) -> str:
    """Hash of the last checkpoint's weights."""
    last = checkpoints(folder / "checkpoints")[-1]
    files = sorted([*last.glob("adapter_model.safetensors"), *last.glob("value_head.safetensors")])
    assert files
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def gradient(learner: Learner, trees: Sequence[Tree]) -> list[torch.Tensor]:
    """What one update would step along; the learner is left as it was, measured gap to the engine included."""
    found: list[torch.Tensor] = []

    def keep(loss: torch.Tensor) -> tuple[float, bool]:
        for g in learner.optimizer.param_groups:
            found.extend(p.grad.clone() for p in g["params"] if p.grad is not None)
        learner.optimizer.zero_grad()
        return 0.0, True

    step, gap = learner.step, learner.gap
    learner.step = keep  # type: ignore[method-assign]
    learner.learn(1, trees)
    learner.step, learner.gap = step, gap  # type: ignore[method-assign]
    assert found and any(float(g.abs().sum()) > 0 for g in found)
    return found


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
