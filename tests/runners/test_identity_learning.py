"""Every algorithm solves the identity environment in seconds, by the very program that people start."""

from __future__ import annotations

from pathlib import Path

import pytest
from learning_cases import SMALL, solve
from run_cases import rows

from algorithms import ALGORITHMS

SETTINGS = f"env: identity\n{SMALL}"

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_it_is_solved(tmp_path: Path, algo: str) -> None:
    solve(tmp_path / "run", algo, SETTINGS)
    assert len(rows(tmp_path / "run")) == 48 and (tmp_path / "run" / "checkpoints" / "update-48").is_dir()
