"""Runs on the identity environment: a learning rate of 0 teaches nothing, and the numbers depend on the seed alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learning_cases import IDENTITY, JUDGED, success
from run_cases import rows, training

from agents.tree import Kind
from algorithms import ALGORITHMS

FEWER = ("--episodes", "32", "--minibatches", "2")

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.slow]


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_without_a_learning_rate_nothing_is_learned(tmp_path: Path, algo: str) -> None:
    argv = ("--algo", algo, *JUDGED.get(algo, ()), "--lr", "0", "--updates", "2")
    with training(tmp_path / "run", *argv, text=IDENTITY) as run:
        before, weights = success(run, samples=2), run.model.policy_state()
        run.run()
        assert success(run, samples=2) == before <= 0.5
    assert all(torch.equal(tensor, weights[name]) for name, tensor in run.model.policy_state().items())


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, algo: str) -> None:
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    for folder, seed, updates in ((first, 3, 2), (again, 3, 2), (other, 4, 1)):
        steps = ("--updates", str(updates), "--test-tasks", "10", "--seed", str(seed), *FEWER)
        argv = ("--algo", algo, *JUDGED.get(algo, ()), *steps)
        with training(folder, *argv, text=IDENTITY) as run:
            run.run()
    assert len(rows(first)) == 6
    assert rows(first) == rows(again)
    assert (first / "episodes.jsonl").read_text() == (again / "episodes.jsonl").read_text()
    assert rows(first)[:3] != rows(other)[:3]


def test_every_action_carries_the_version_that_sampled_it(tmp_path: Path) -> None:
    seen = []
    with training(tmp_path / "run", "--updates", "3", text=IDENTITY) as run:
        learn = run.learner.learn

        def watched(update: int, trees: Any, used: float) -> Any:
            nodes = [node for tree in trees for node in tree.root.walk()]
            seen.append({n.version for n in nodes if n.kind is Kind.ACTION})
            return learn(update, trees, used)

        run.learner.learn = watched  # type: ignore[method-assign]
        run.run()
    assert seen == [{0}, {1}, {2}]
