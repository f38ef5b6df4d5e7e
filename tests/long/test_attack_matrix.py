"""The matrix of hostile programs, by root and by a user without rights, as its command prints it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_MATRIX = Path(__file__).parents[1] / "agent_envs/code/sandbox/matrix.py"


@pytest.mark.parametrize("wall", ["namespace", "landlock"])
def test_the_matrix_is_held(wall: str) -> None:
    done = subprocess.run([sys.executable, str(_MATRIX), wall], capture_output=True, text=True, timeout=900)
    print(done.stdout)
    if "not here" in done.stdout and not os.environ.get("CI"):
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    users = 2 if os.geteuid() == 0 else 1
    assert done.stdout.count(" held, ") == users and "left: nothing" in done.stdout
