"""Exercises of the tiny model: a task without one is passed over, and other exercises make another model."""

from __future__ import annotations

import numpy as np

from agent_envs.core import Drill, Exercise, Task
from agent_envs.identity import IdentityEnv
from runners.pretrain import PretrainSettings, _drills, _fingerprint


class Drilled(IdentityEnv):
    word = "red"

    def drill(self, task: Task, rng: np.random.Generator) -> Drill | None:
        return ("a text", [Exercise("say ", self.word)]) if rng.random() < 0.5 else None


def test_tasks_without_an_exercise_are_passed_over() -> None:
    assert 60 < len(list(_drills(Drilled(), PretrainSettings(), 200))) < 140
    assert list(_drills(IdentityEnv(), PretrainSettings(), 200)) == []


def test_other_exercises_make_another_model() -> None:
    other = Drilled()
    other.word = "blue"
    found = [_fingerprint(env) for env in (IdentityEnv(), Drilled(), Drilled(), other)]
    assert found[1] == found[2] and len(set(found)) == 3
