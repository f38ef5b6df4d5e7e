"""Solver, scorer and fork on a thousand random states of every kind and level, with undo and without."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "agent_envs" / "puzzle"))
from puzzle_walks import agreement

from agent_envs.puzzle.config import PuzzleConfig, PuzzleKind
from agent_envs.puzzle.env import PuzzleEnv


@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("kind", sorted(PuzzleKind))
def test_agreement(kind: PuzzleKind, undo: bool) -> None:
    for level in (1, 2, 3):
        assert sum(agreement(PuzzleEnv(PuzzleConfig(kind=kind, levels=(level,), undo=undo)), 1000)) == 1000
