"""Every algorithm solves two small environments, by the very program that people start, and its runs can be repeated.

What the whole runs of `make test-runs` ask of some algorithms is asked here of the others.

    python -m pytest -q tests/long/test_small_learning.py

Not part of the default suite: each takes up to a minute, and there are many of them. `.ci/run` runs it.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "runners"))
from learning_cases import IDENTITY, SMALL, learns_nothing, repeats, solve
from test_identity_repeats import KINDS

from algorithms import ALGORITHMS

# Three decisions, and one reward for all of them together. Without the exercise in recalling what was read some clones
# cannot tell some signs from others, and no algorithm gets past that.
THREE_STEPS = f"""
env: corridor
corridor: {{doors: 3, pulls: 5, max_turns: 7, signs: 12, blank: 0.2, train_tasks: 2000}}
{SMALL.replace("steps: 400", "steps: 600, recall: 0.3")}"""

OTHERS = sorted(set(ALGORITHMS) - set(KINDS))

# An update teaches these less: of arpo's episodes half begin as others of their group did.
LONGER = {"arpo": "updates: 72", "ppo": "updates: 64", "pacs": "updates: 64"}

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("algo", sorted(set(ALGORITHMS) - {"selfac"}))
def test_the_identity_environment_is_solved(tmp_path: Path, algo: str) -> None:
    solve(tmp_path / "run", algo, IDENTITY)


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_three_decisions_with_one_reward_are_solved(tmp_path: Path, algo: str) -> None:
    solve(tmp_path / "run", algo, THREE_STEPS.replace("updates: 48", LONGER.get(algo, "updates: 48")))


@pytest.mark.parametrize("algo", OTHERS)
def test_without_a_learning_rate_nothing_is_learned(tmp_path: Path, algo: str) -> None:
    learns_nothing(tmp_path, algo)


@pytest.mark.parametrize("algo", OTHERS)
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, algo: str) -> None:
    repeats(tmp_path, algo)
