"""Every algorithm solves three decisions that are rewarded together, by the very program that people start."""

from __future__ import annotations

from pathlib import Path

import pytest
from learning_cases import solve

from algorithms import ALGORITHMS

# Three decisions, and one reward for all of them together.
THREE_STEPS = """
env: corridor
corridor: {doors: 3, pulls: 5, max_turns: 7, signs: 12, blank: 0.2, train_tasks: 2000}
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

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_it_is_solved(tmp_path: Path, algo: str) -> None:
    solve(tmp_path / "run", algo, THREE_STEPS)
