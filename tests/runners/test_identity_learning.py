"""The identity environment is solved in seconds, by the very program that people start.

Here by the algorithm that the project is about; by every other in tests/long/test_small_identity.py.
"""

from pathlib import Path

import pytest
from learning_cases import IDENTITY, solve
from run_cases import rows

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]


def test_it_is_solved(tmp_path: Path) -> None:
    solve(tmp_path / "run", "selfac", IDENTITY)
    assert len(rows(tmp_path / "run")) == 48 and (tmp_path / "run" / "checkpoints" / "update-48").is_dir()
