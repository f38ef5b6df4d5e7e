"""Runs on the identity environment: a learning rate of 0 teaches nothing, and the numbers depend on the seed alone.

The same of every algorithm: tests/long/test_small_identity.py.
"""

from pathlib import Path
from typing import Any

import pytest
from learning_cases import IDENTITY, learns_nothing, repeats
from run_cases import training

from agents.tree import Kind

KINDS = ["arpo", "grpo", "ppo", "selfac"]
"""One of each way of playing and learning: forks, groups, a critic of its own, a critic in the policy's pass."""

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]


@pytest.mark.parametrize("algo", KINDS)
def test_without_a_learning_rate_nothing_is_learned(tmp_path: Path, algo: str) -> None:
    learns_nothing(tmp_path, algo)


@pytest.mark.parametrize("algo", KINDS)
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, algo: str) -> None:
    repeats(tmp_path, algo)


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
