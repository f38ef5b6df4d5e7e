"""Every algorithm solves an environment of three decisions, by the very program that people start.

    python -m pytest -q tests/long/test_small_learning.py

Not part of the default suite: each takes up to a minute, and there are many of them. `.ci/run` runs it.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "runners"))
from learning_cases import SMALL, solve

from algorithms import ALGORITHMS

# Three decisions, and one reward for all of them together. Without the exercise in recalling what was read some clones
# cannot tell some signs from others, and no algorithm gets past that.
THREE_STEPS = f"""
env: corridor
corridor: {{doors: 3, pulls: 5, max_turns: 7, signs: 12, blank: 0.2, train_tasks: 2000}}
{SMALL.replace("steps: 400", "steps: 600, recall: 0.3")}"""

# An update teaches these less: of arpo's episodes half begin as others of their group did.
LONGER = {"arpo": "updates: 72", "ppo": "updates: 64", "pacs": "updates: 64"}

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_three_decisions_with_one_reward_are_solved(tmp_path: Path, algo: str) -> None:
    solve(tmp_path / "run", algo, THREE_STEPS.replace("updates: 48", LONGER.get(algo, "updates: 48")))
