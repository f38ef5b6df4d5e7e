"""Generated tasks: the same every time, disjoint, and as the settings want them."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from agent_envs.code.task import CodeTask
from agent_envs.code.tasks.bugs import bugs_of
from agent_envs.code.tasks.catalogue import programs
from agent_envs.code.tasks.generate import HIDDEN, VISIBLE, level_of
from agent_envs.code.tasks.settings import Grader, Operator, TaskKind, TaskSettings
from agent_envs.code.tasks.source import build
from agent_envs.code.tasks.stub import stub
from agent_envs.core import SPLITS, SettingsError, Task

MANY = 240


def tasks(split: str = "train", count: int = MANY, **settings: object) -> list[Task]:
    return build(TaskSettings(**settings), split)[:count]  # type: ignore[arg-type]


def names(task: Task) -> set[str]:
    """What the files of a task define."""
    trees = [ast.parse(text) for text in {**task.data.files, **task.data.solution}.values()]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("kind", TaskKind)
def test_the_same_settings_give_the_same_tasks(kind: TaskKind) -> None:
    assert tasks(kind=kind) == tasks(kind=kind)
    assert tasks(kind=kind) != tasks(kind=kind, seed=1)


@pytest.mark.parametrize("kind", TaskKind)
def test_a_task_is_found_by_its_id(kind: TaskKind) -> None:
    found = build(TaskSettings(kind=kind), "test")
    assert len(found) == 1000 and len(build(TaskSettings(kind=kind), "train")) == 20000
    assert found.find(found[7].id) == found[7]
    for wrong in ("code-repair-test-007", "code-repair-test-1000", "code-other-test-1", "code-repair-train-1", ""):
        assert found.find(wrong) is None
    assert len({task.id for task in found[:MANY]}) == MANY


@pytest.mark.parametrize("kind", TaskKind)
def test_splits_share_no_function(kind: TaskKind) -> None:
    seen = {split: set().union(*map(names, tasks(split, kind=kind))) for split in SPLITS}
    assert not seen["train"] & seen["valid"] and not seen["train"] & seen["test"] and not seen["valid"] & seen["test"]
    assert min(map(len, seen.values())) >= 20
    assert seen["train"] & set().union(*map(names, tasks("train", kind=kind, seed=5)))  # the sets can meet


def check(task: Task, kind: TaskKind) -> None:
    data = task.data
    assert isinstance(data, CodeTask) and not data.grader
    assert (len(data.visible), len(data.hidden)) == (VISIBLE, HIDDEN)
    assert len({(case.module, case.expression) for case in (*data.visible, *data.hidden)}) == VISIBLE + HIDDEN
    assert data.solution and set(data.solution) <= set(data.files) and "main.py" in data.files
    assert all(data.files[name] != text for name, text in data.solution.items())
    assert task.prompt.startswith(data.statement) and task.level in (1, 2, 3)
    assert ("。" in data.statement) == (task.language == "zh")
    assert (len(data.files) > 1) == (kind is TaskKind.MULTI) and len(data.solution) <= 2
    for case in data.visible:
        assert case.expression in task.prompt
    for case in data.hidden:
        assert f"{case.expression} ==" not in task.prompt


@pytest.mark.parametrize("kind", TaskKind)
def test_what_every_task_is(kind: TaskKind) -> None:
    for split in SPLITS:
        found = tasks(split, kind=kind)
        assert all(task.split == split for task in found)
        for task in found:
            check(task, kind)
        count = Counter(task.language for task in found)
        assert abs(count["en"] - count["zh"]) <= MANY // 10
    with pytest.raises(AssertionError):
        check(tasks(kind=TaskKind.REPAIR)[0], TaskKind.MULTI)


def test_a_bug_shows_in_what_is_seen_and_in_what_pays() -> None:
    for kind in (TaskKind.REPAIR, TaskKind.MULTI):
        for task in tasks("test", kind=kind):
            (name,) = [n for n, p in programs().items() if p.files == {**task.data.files, **task.data.solution}]
            program = programs()[name]
            (bug,) = [bug for bug in bugs_of(program) if bug.apply(program.files) == task.data.files]
            failing = {case.expression for number, case in enumerate(program.pool) if bug.fails(number)}
            for cases in (task.data.visible, task.data.hidden):
                assert failing & {case.expression for case in cases}


def test_programs_take_turns_and_so_do_mistakes() -> None:
    found = tasks("test", 500)
    count = Counter(frozenset(names(task)) for task in found)
    assert len(count) >= 20 and max(count.values()) - min(count.values()) <= 1
    shown = [(task.prompt, str(task.data.files)) for task in found]
    assert len(set(shown)) == len(shown)
    alone = [task for task in found if len(names(task)) == 1]
    assert len({str(task.data.files) for task in alone}) > 400  # nearly every one is another bug


def test_levels_are_sizes() -> None:
    for kind in TaskKind:
        for level in (1, 2, 3):
            for task in tasks(kind=kind, levels=(level,), count=40):
                assert task.level == level
    sizes = {
        level: {p.lines for p in programs().values() if len(p.files) == 1 and level_of(p) == level}
        for level in (1, 2, 3)
    }
    assert max(sizes[1]) < min(sizes[2]) <= max(sizes[2]) < min(sizes[3])


@pytest.mark.parametrize("operator", Operator)
def test_operators_can_be_chosen(operator: Operator) -> None:
    for split in SPLITS:
        for task in tasks(split, 30, operators=(operator,)):
            (program,) = [p for p in programs().values() if p.files == {**task.data.files, **task.data.solution}]
            bugs = [bug for bug in bugs_of(program) if bug.apply(program.files) == task.data.files]
            assert [bug.operators for bug in bugs] == [{operator}]


def test_languages_can_be_chosen() -> None:
    assert {task.language for task in tasks(languages=("zh",))} == {"zh"}
    assert {task.language for task in tasks(languages=("en",))} == {"en"}


def test_a_stub_does_nothing() -> None:
    method = "    def f(self, x):\n        if x:\n            return 1\n        return 2\n"
    text = f"class A:\n{method}\n    def g(self):\n        return 3\n"
    assert stub(text) == "class A:\n    def f(self, x):\n        pass\n\n    def g(self):\n        pass\n"
    for task in tasks(kind=TaskKind.SYNTHESIS):
        assert set(task.data.solution) == set(task.data.files) == {"main.py"}
        assert "return" not in task.data.files["main.py"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels": (4,)}, "levels must be distinct ones of 1, 2, 3"),
        ({"levels": (1, 1)}, "levels must be distinct"),
        ({"operators": ("swap",)}, "operators must be distinct ones of boundary, compare"),
        ({"languages": ()}, "languages names none"),
        ({"languages": ("fr",)}, "languages must be distinct ones of en, zh"),
        ({"train_tasks": 0}, "must be from 1 to"),
        ({"kind": TaskKind.SYNTHESIS, "operators": (Operator.JUMP,)}, "operators do not act with kind synthesis"),
        ({"source": "a.jsonl", "kind": TaskKind.MULTI}, "kind acts on generated tasks only, not on those of a.jsonl"),
        ({"source": "a.jsonl", "levels": (1,)}, "levels acts on generated tasks only"),
        ({"source": "a.jsonl", "operators": (Operator.JUMP,)}, "operators acts on generated tasks only"),
        ({"source": "a.jsonl", "seed": 3}, "seed acts on generated tasks only"),
    ],
)
def test_settings_that_cannot_be_are_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        TaskSettings(**settings)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def test_settings_without_a_task_are_one_line() -> None:
    config = TaskSettings(kind=TaskKind.MULTI, levels=(1,), operators=(Operator.JUMP,))
    with pytest.raises(SettingsError, match=r"no multi program of the test split .* allow more of them"):
        build(config, "test")
    with pytest.raises(SettingsError, match="no split 'dev'"):
        build(TaskSettings(), "dev")
    assert TaskSettings(grader=Grader.IN_PROCESS).source == "generated"
