"""A seeded sample of tasks, judged: gold earns all, every bug less, an empty file nothing. All of them: tests/long."""

from __future__ import annotations

from random import Random

from agent_envs.code.judge import check
from agent_envs.code.sandbox import Sandbox
from agent_envs.code.task import Case, CodeTask
from agent_envs.code.tasks.settings import TaskKind, TaskSettings
from agent_envs.code.tasks.source import build
from agent_envs.core import SPLITS

_SAMPLE = {TaskKind.REPAIR: 6, TaskKind.MULTI: 2, TaskKind.SYNTHESIS: 3}
"""Tasks of each split."""


def score(files: dict[str, str], task: CodeTask, walls: Sandbox) -> float:
    """The share of hidden checks that pass."""
    told = check(walls, files, task.hidden)
    return sum(case.passed for case in told) / len(told)


def sample(kind: TaskKind) -> list[CodeTask]:
    rng = Random(f"sample-{kind}")
    sets = [build(TaskSettings(kind=kind), split) for split in SPLITS]
    return [tasks[rng.randrange(1000)].data for tasks in sets for _ in range(_SAMPLE[kind])]


def test_repairs(walls: Sandbox) -> None:
    for task in (*sample(TaskKind.REPAIR), *sample(TaskKind.MULTI)):
        files = dict(task.files)
        assert score({**files, **task.solution}, task, walls) == 1.0
        assert score(files, task, walls) < 1.0


def test_what_is_written_anew(walls: Sandbox) -> None:
    for task in sample(TaskKind.SYNTHESIS):
        assert score(dict(task.solution), task, walls) == 1.0
        assert score(dict(task.files), task, walls) == 0.0
        assert score({"main.py": ""}, task, walls) == 0.0


def test_a_wrong_expectation_would_be_noticed(walls: Sandbox) -> None:
    task = sample(TaskKind.SYNTHESIS)[0]
    wrong = CodeTask("", task.files, (), tuple(Case(c.module, c.expression, [c.expected]) for c in task.hidden))
    assert score(dict(task.solution), wrong, walls) == 0.0
