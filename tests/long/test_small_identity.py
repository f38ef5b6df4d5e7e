"""Every algorithm solves the identity environment, learns nothing without a learning rate, and repeats its runs.

    python -m pytest -q tests/long/test_small_identity.py

Not part of the default suite: each takes up to a minute, and there are many of them. `.ci/run` runs it. What the whole
runs of `make test-runs` ask of some algorithms is asked here of the others.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "runners"))
from learning_cases import IDENTITY, learns_nothing, repeats, solve
from test_identity_repeats import KINDS

from algorithms import ALGORITHMS

OTHERS = sorted(set(ALGORITHMS) - set(KINDS))

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("algo", sorted(set(ALGORITHMS) - {"selfac"}))
def test_the_identity_environment_is_solved(tmp_path: Path, algo: str) -> None:
    solve(tmp_path / "run", algo, IDENTITY)


@pytest.mark.parametrize("algo", OTHERS)
def test_without_a_learning_rate_nothing_is_learned(tmp_path: Path, algo: str) -> None:
    learns_nothing(tmp_path, algo)


@pytest.mark.parametrize("algo", OTHERS)
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, algo: str) -> None:
    repeats(tmp_path, algo)
