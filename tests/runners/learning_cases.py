"""Small environments that every algorithm must solve, and what else its runs must keep."""

from pathlib import Path

import torch
from run_cases import rows, training

from agent_envs import registry
from agents.engine import SamplingSettings
from runners.evaluation.measure import evaluate_tasks
from runners.evaluation.tasks import pick_tasks
from runners.training.run import Training

# A demonstrator that is wrong in half of the turns, cloned in a few seconds.
SMALL = """updates: 48
episodes: 96
minibatches: 6
lr: 3e-3
eval_every: 0
test_tasks: 0
react: {max_action_tokens: 16, max_tokens: 256}
pretrain:
  {flaw: 0.5, demonstrations: 300, steps: 400, shape: {width: 64, mlp: 128}}
"""
IDENTITY = f"env: identity\n{SMALL}"
JUDGED = {"adca": ("--judge.kind", "oracle")}


def success(run: Training, *, greedy: bool = False, samples: int = 12) -> float:
    """Mean success on every test task, ``samples`` of each, or what it does greedily."""
    run.controller.load(run.update, run.model.policy_state())
    tasks = pick_tasks(registry.make(*run.settings.only_env("this test")), "test", 43)
    sampling = SamplingSettings(greedy=greedy)
    samples = 1 if greedy else samples
    return evaluate_tasks(run.controller, sampling, tasks, run.console, seed=9, samples=samples).success().mean


def solve(folder: Path, algo: str, settings: str) -> None:
    """Trains in ``folder``; from a start that leaves something to learn, success reaches 0.95."""
    with training(folder, "--algo", algo, *JUDGED.get(algo, ()), text=settings) as run:
        before, greedy_before = success(run), success(run, greedy=True)
        assert 0.02 <= before <= 0.5 and greedy_before <= 0.75, "there must be something to learn, and a beginning"
        run.run()
        assert success(run) >= 0.95
        assert success(run, greedy=True) >= 0.95


def learns_nothing(folder: Path, algo: str) -> None:
    """With a learning rate of 0 a run ends as it began."""
    argv = ("--algo", algo, *JUDGED.get(algo, ()), "--lr", "0", "--updates", "2")
    with training(folder / "run", *argv, text=IDENTITY) as run:
        before, weights = success(run, samples=2), run.model.policy_state()
        run.run()
        assert success(run, samples=2) == before <= 0.5
    assert all(torch.equal(tensor, weights[name]) for name, tensor in run.model.policy_state().items())


def repeats(folder: Path, algo: str) -> None:
    """The same seed gives the same numbers, and another one others."""
    first, again, other = (folder / name for name in ("first", "again", "other"))
    for place, seed, updates in ((first, 3, 2), (again, 3, 2), (other, 4, 1)):
        steps = ("--updates", str(updates), "--test-tasks", "10", "--seed", str(seed))
        argv = ("--algo", algo, *JUDGED.get(algo, ()), *steps, "--episodes", "32", "--minibatches", "2")
        with training(place, *argv, text=IDENTITY) as run:
            run.run()
    assert len(rows(first)) == 6
    assert rows(first) == rows(again)
    assert (first / "episodes.jsonl").read_text() == (again / "episodes.jsonl").read_text()
    assert rows(first)[:3] != rows(other)[:3]
