"""Every algorithm solves two small environments in seconds, by the very program that people start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from run_cases import rows, training

from agents.engine import SamplingSettings
from agents.tree import Kind
from algorithms import ALGORITHMS
from runners.measure import evaluate_tasks, pick_tasks
from runners.training import Training

# A demonstrator that is wrong in half of the turns, cloned in a few seconds.
SETTINGS = """
env: identity
updates: 48
episodes: 96
minibatches: 6
lr: 3e-3
eval_every: 0
test_tasks: 0
react: {max_action_tokens: 16, max_tokens: 256}
pretrain:
  {flaw: 0.5, demonstrations: 300, steps: 400, shape: {width: 64, mlp: 128}}
"""


# Three decisions, and one reward for all of them together.
THREE_STEPS = """
env: corridor
corridor: {doors: 3, pulls: 4, max_turns: 6, signs: 12, blank: 0.2, train_tasks: 2000}
updates: 48
episodes: 96
minibatches: 6
lr: 3e-3
eval_every: 0
test_tasks: 0
react: {max_action_tokens: 16, max_tokens: 256}
pretrain:
  {flaw: 0.5, demonstrations: 300, steps: 400, shape: {width: 64, mlp: 128}}
"""
BOTH = {"identity": SETTINGS, "three steps": THREE_STEPS}


JUDGED = {"adca": ("--judge.kind", "oracle")}

pytestmark = pytest.mark.usefixtures("own_cache")


def success(run: Training, *, greedy: bool = False) -> float:
    """Mean success on every test task, twelve samples each."""
    run.controller.load(run.update, run.model.policy_state())
    tasks = pick_tasks(run.make_env(), "test", 43)
    sampling = SamplingSettings(greedy=greedy)
    return evaluate_tasks(run.controller, sampling, tasks, run.console, seed=9, samples=12).success()["mean"]


@pytest.mark.slow
@pytest.mark.parametrize("env", BOTH)
@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_it_is_solved(tmp_path: Path, algo: str, env: str) -> None:
    # Solved completely, a task has batches of which Self-AC would only learn its critic's error.
    floors = {"selfac": "--selfac.std-floor", "naive_ac": "--naive-ac.formula.std-floor", "ppo": "--ppo.std-floor"}
    steady = (floors[algo], "0.1") if algo in floors else ()
    with training(tmp_path / "run", "--algo", algo, *JUDGED.get(algo, ()), *steady, text=BOTH[env]) as run:
        before, greedy_before = success(run), success(run, greedy=True)
        assert 0.02 <= before <= 0.5 and greedy_before <= 0.75, "there must be something to learn, and a beginning"
        run.run()
        assert success(run) >= 0.95
        assert success(run, greedy=True) >= 0.95
    assert len(rows(tmp_path / "run")) == 48 and (tmp_path / "run" / "checkpoints" / "update-48").is_dir()


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_without_a_learning_rate_nothing_is_learned(tmp_path: Path, algo: str) -> None:
    argv = ("--algo", algo, *JUDGED.get(algo, ()), "--lr", "0", "--updates", "4")
    with training(tmp_path / "run", *argv, text=SETTINGS) as run:
        before, weights = success(run), run.model.policy_state()
        run.run()
        assert success(run) == before <= 0.5
    assert all(torch.equal(tensor, weights[name]) for name, tensor in run.model.policy_state().items())


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, algo: str) -> None:
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    for folder, seed in ((first, 3), (again, 3), (other, 4)):
        argv = ("--algo", algo, *JUDGED.get(algo, ()), "--updates", "3", "--test-tasks", "10", "--seed", str(seed))
        with training(folder, *argv, text=SETTINGS) as run:
            run.run()
    assert len(rows(first)) == 7
    assert rows(first) == rows(again)
    assert (first / "episodes.jsonl").read_text() == (again / "episodes.jsonl").read_text()
    assert rows(first) != rows(other)


def test_every_action_carries_the_version_that_sampled_it(tmp_path: Path) -> None:
    seen = []
    with training(tmp_path / "run", "--updates", "3", text=SETTINGS) as run:
        learn = run.learner.learn

        def watched(update: int, trees: Any, used: float) -> Any:
            nodes = [node for tree in trees for node in tree.root.walk()]
            seen.append({n.version for n in nodes if n.kind is Kind.ACTION})
            return learn(update, trees, used)

        run.learner.learn = watched  # type: ignore[method-assign]
        run.run()
    assert seen == [{0}, {1}, {2}]
