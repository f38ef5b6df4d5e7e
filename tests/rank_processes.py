"""Starts the processes of a test that learns in several ranks."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PATHS = (HERE.parent, HERE, HERE / "runners", HERE / "agents")


def run_ranks(script: Path, size: int, *arguments: object, seconds: float) -> None:
    """Runs ``script RANK SIZE ARGUMENTS…`` once for each rank, side by side; each must end well in so many seconds."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS)), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(size), *map(str, arguments)], stderr=subprocess.PIPE, env=env
        )
        for rank in range(size)
    ]
    try:
        for rank in ranks:
            _, said = rank.communicate(timeout=seconds)
            assert rank.returncode == 0, said.decode()[-2000:]
    finally:
        for rank in ranks:
            rank.kill()
