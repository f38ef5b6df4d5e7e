"""Files in the manner of HumanEval, MBPP and EvalPlus: what becomes of their checks, and of files that mean harm."""

from __future__ import annotations

import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from agent_envs.code.judge import check, in_process
from agent_envs.code.sandbox import Limits, Sandbox
from agent_envs.code.task import Case, CodeTask, Identity
from agent_envs.code.tasks import files
from agent_envs.code.tasks.asserts import MOST_CASES, called_check, listed_checks
from agent_envs.code.tasks.known import MOST_INPUTS
from agent_envs.code.tasks.settings import Grader, TaskSettings
from agent_envs.code.tasks.source import build
from agent_envs.core import SPLITS, SettingsError, Task
from agent_envs.rows import MOST_TEXT

DATA = Path(__file__).with_name("data")
EVAL = {"prompt": "def f(x):\n    '''Twice x.'''\n", "entry_point": "f", "canonical_solution": "    return 2 * x\n"}


def load(source: Path, **settings: Any) -> dict[str, Task]:
    """First line of the text → task, over all splits."""
    files._load.cache_clear()  # the same name may be another file
    config = TaskSettings(source=str(source), **settings)
    found = [task for split in SPLITS for task in build(config, split)]
    return {task.data.statement.splitlines()[1]: task for task in found}


def written(folder: Path, *found: object, name: str = "some.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in found), "utf-8")
    return path


def passes(task: CodeTask, walls: Sandbox, **changed: str) -> float:
    text = changed.get("main", task.solution["main.py"])
    told = check(walls, {"main.py": text}, [*task.visible, *task.hidden])
    return sum(case.passed for case in told) / len(told)


# ---- assertions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("assert f(1) == 2", ("f(1)", 2, 0.0)),
        ("assert [1, 2] == f('a', k=3), 'why'", ("f('a', k=3)", [1, 2], 0.0)),
        ("assert f() == set([1, 2])", ("f()", {1, 2}, 0.0)),
        ("assert f() == tuple([1])", ("f()", (1,), 0.0)),
        ("assert f(1) == (3 + 5 + 7, 6.0 / 5.0, -2 * 3)", ("f(1)", (15, 1.2, -6), 0.0)),
        ("print('x')\nassert f(f(1)) == -1", ("f(f(1))", -1, 0.0)),
        ("assert sorted(f(1), reverse=True) == [2]", ("sorted(f(1), reverse=True)", [2], 0.0)),
        ("assert round(f(1)[0], 2) == 0.5", ("round(f(1)[0], 2)", 0.5, 0.0)),
        ("assert f(lambda a: a + 1) == {'a': (1, None)}", ("f(lambda a: a + 1)", {"a": (1, None)}, 0.0)),
        ("assert f([i for i in range(3)]) is None", ("f([i for i in range(3)])", None, 0.0)),
        ("assert f(1) is True", ("f(1)", True, 0.0)),
        ("assert f(1)", ("bool(f(1))", True, 0.0)),
        ("assert not f(1)", ("bool(f(1))", False, 0.0)),
        ("assert abs(f(1) - 0.5) < 1e-6", ("f(1)", 0.5, 1e-6)),
        ("assert abs(2 - f(1)) <= 0.01", ("f(1)", 2, 0.01)),
        ("assert math.isclose(f(1), 4.0, rel_tol=0.25)", ("f(1)", 4.0, 1.0)),
        ("assert isclose(f(1), 4.0, rel_tol=0, abs_tol=0.001)", ("f(1)", 4.0, 0.001)),
    ],
)
def test_an_assertion_becomes_a_case(text: str, case: tuple[str, Any, float]) -> None:
    checks = listed_checks([text], "f", frozenset())
    assert checks.unsupported == []
    assert [(case.expression, case.expected, case.tolerance) for case in checks.cases] == [case]
    assert [isinstance(one, Identity) for one in checks.cases] == [" is " in text]


@pytest.mark.parametrize("in_its_process", [False, True])
def test_is_true_is_not_passed_by_what_is_equal(walls: Sandbox, in_its_process: bool) -> None:
    checks = listed_checks(["assert f(1) == True", "assert f(1) is True"], "f", frozenset())
    for value, passed in (("True", [True, True]), ("1", [True, False])):
        text = {"main.py": f"def f(x):\n    return {value}\n"}
        told = (
            in_process(walls, text, checks.cases, limits=Limits())
            if in_its_process
            else check(walls, text, checks.cases)
        )
        assert [case.passed for case in told] == passed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("assert f(1) == g(2)", "not a literal"),
        ("assert f(1) != 2", "no comparison"),
        ("assert f(1) in (1, 2)", "no comparison"),
        ("assert f(1) > 0", "no comparison"),
        ("assert f(1) == 1 or f(1) == 2", "no comparison"),
        ("assert (f(1) == 2) == True", "decided beside the submission"),
        ("assert math.isclose(f(1), 2) == True", "decided beside the submission"),
        ("assert not all(a == 1 for a in f(1))", "decided beside the submission"),
        ("assert f(1).check(2) == True", "decided beside the submission"),
        ("assert all(a == 1 for a in f(1))", "no comparison"),
        ("assert g(f(1), 2)", "no comparison"),
        ("assert f(x) == 2", "a name that is set in the test: x"),
        ("assert 1 == 1", "not called"),
        ("assert f(1) == float('nan')", "not a literal"),
        ("assert f(1) == 1e999 - 1e999", "not a literal"),
        ("assert f(1) == ...", "no number"),
        ("assert f(1) == 1 / 0", "not a literal"),
        ("assert f(1) == 2 ** 9", "not a literal"),
        ("assert f(1) == " + "(1000 * " * 60 + "1" + ")" * 60, "not a literal"),
        ("assert f(1) == 'a' * 9", "not a literal"),
        ("assert f(1) == {[]: 1}", "not a literal"),
        ("assert f(1) == set([[]])", "not a literal"),
        ("assert abs(f(1) - 2) < 5", "outside 0 to 1"),
        ("assert abs(f(1) - '2') < 0.5", "not a number"),
        ("assert math.isclose(f(1), 2, rel_tol=x)", "not a literal"),
        ("for a in b: assert f(a) == 1", "for statement"),
        ("x = f(1)", "assign statement"),
        ("assert f(", "no Python"),
        (f"assert f(1) == {'[' * 80}{']' * 80}", "too large"),
        (f"assert f({'-' * 5000}1) == 1", "no Python"),
        (f"assert f({'9' * 5000}) == 1", "no Python"),
        (f"assert f('{'a' * 30_000}') == 1", "more than 20000"),
        ("\n".join(f"assert f({n}) == 1" for n in range(MOST_CASES + 1)), "more than 256 checks"),
        (f"assert f({'a.' * 500}b) == 1", "nested too deep|name that is set"),
    ],
)
def test_what_is_no_case_says_why(text: str, reason: str) -> None:
    found = listed_checks([text], "f", frozenset()).unsupported
    assert found and re.search(reason, found[-1]), found


def test_the_value_of_a_check_never_stands_in_what_is_sent() -> None:
    secret = "'a secret value'"
    for text in (
        f"f(1) == {secret}",
        f"{secret} == f(1)",
        f"sorted(f(1)) == [{secret}]",
        f"f(1) is None and f(2) == {secret}",
    ):
        checks = listed_checks([f"assert {text}"], "f", frozenset())
        assert checks.cases and all("secret" not in case.expression for case in checks.cases)
        assert "secret" in str([case.expected for case in checks.cases])


def test_a_check_function_without_a_candidate_is_named() -> None:
    for text in ("", "def check():\n    pass\n", "check = 1\n", "def check(a, b):\n    pass\n", "def check(:\n"):
        assert called_check(text, "f", frozenset()).unsupported == ["no function check(candidate)"]


# ---- the three manners --------------------------------------------------------------------------------------------


def test_humaneval(caplog: pytest.LogCaptureFixture, walls: Sandbox) -> None:
    with caplog.at_level(logging.WARNING):
        found = load(DATA / "humaneval.jsonl")
    assert len(found) == 3
    (line,) = caplog.messages
    assert "1 of 4 tasks are left out" in line and "for statement (1)" in line and "--code.grader in-process" in line
    for task in found.values():
        assert passes(task.data, walls) == 1.0
        assert not task.data.grader and "return" not in task.data.files["main.py"]
    half = found["from math import floor"].data
    assert [(case.expression, case.expected) for case in half.visible] == [("lower_half([1, 2, 3, 4])", [1, 2])]
    assert Case("main", "len(lower_half([0] * 100))", 50) in half.hidden
    assert passes(half, walls, main="def lower_half(items):\n    return []\n") == pytest.approx(1 / 5)


def test_mbpp(caplog: pytest.LogCaptureFixture, walls: Sandbox) -> None:
    with caplog.at_level(logging.WARNING):
        found = load(DATA / "mbpp.jsonl")
    assert "1 of 2 tasks are left out" in caplog.text
    (task,) = found.values()
    assert task.data.files == {"main.py": "def even_places(items):\n    pass\n"}
    assert passes(task.data, walls) == 1.0 and passes(task.data, walls, main="") == 0.0
    # A list is no tuple.
    assert passes(task.data, walls, main="def even_places(items):\n    return list(items[::2])\n") < 1.0


def test_evalplus_asks_the_solution(caplog: pytest.LogCaptureFixture, walls: Sandbox) -> None:
    with caplog.at_level(logging.WARNING):
        found = load(DATA / "evalplus.jsonl")
    # NaN, an input that stands twice, and one that the solution divides by zero with.
    assert "3 inputs are not used" in caplog.text
    ratio = found["def ratio(a, b):"].data
    assert {case.expression: case.expected for case in (*ratio.visible, *ratio.hidden)} == {
        "ratio(1, 2)": 0.5, "ratio(1, 3)": 1 / 3, "ratio(0, 5)": 0.0, "ratio(2, 2)": 1.0,
    }  # fmt: skip
    assert {case.tolerance for case in ratio.hidden} == {1e-6}
    near = "def ratio(a, b):\n    return round(a / b, 9)\n"
    assert passes(ratio, walls, main=near) == 1.0
    assert passes(ratio, walls, main=near.replace("9", "3")) < 1.0
    doubled = next(task.data for text, task in found.items() if text == '"""')
    assert {case.tolerance for case in doubled.hidden} == {0.0} and passes(doubled, walls) == 1.0


def test_what_is_no_case_can_run_its_own_test(caplog: pytest.LogCaptureFixture, walls: Sandbox) -> None:
    with caplog.at_level(logging.WARNING):
        found = load(DATA / "humaneval.jsonl", grader=Grader.IN_PROCESS)
        found |= load(DATA / "mbpp.jsonl", grader=Grader.IN_PROCESS)
    assert "1 of 4 tasks run their own test" in caplog.text and "left out" not in caplog.text
    graded = [task.data for task in found.values() if task.data.grader]
    assert len(graded) == 2 and len(found) == 6
    for task in graded:
        assert not task.visible and not task.hidden
        for text, passed in ((task.solution["main.py"], True), (task.files["main.py"], False)):
            (told,) = in_process(walls, {"main.py": text}, (), task.grader, limits=Limits())
            assert told.passed is passed


def test_a_solution_that_means_harm_runs_in_the_sandbox_only(tmp_path: Path, walls: Sandbox) -> None:
    mark = tmp_path / "mark"
    harm = f"    open({str(mark)!r}, 'w').write('x')\n    return 1\n"
    plus = EVAL | {"canonical_solution": harm, "base_input": [[1], [2]], "plus_input": []}
    with pytest.raises(SettingsError, match="holds no task that can be used"):
        load(written(tmp_path, plus))
    load(written(tmp_path, EVAL | {"canonical_solution": harm, "test": "def check(c):\n    assert c(open) == 1\n"}))
    harmless = EVAL | {"base_input": [[1]], "plus_input": []}
    assert len(load(written(tmp_path, harmless))) == 1
    assert not mark.exists()


def test_inputs_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture, walls: Sandbox) -> None:
    many = [[n] for n in range(MOST_INPUTS + 9)]
    row = EVAL | {"base_input": [["a" * 30_000], *many[:5]], "plus_input": many[5:]}
    with caplog.at_level(logging.WARNING):
        (task,) = load(written(tmp_path, row)).values()
    assert len(task.data.visible) + len(task.data.hidden) == MOST_INPUTS
    assert "10 inputs are not used" in caplog.text


def test_an_input_without_end_costs_itself_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, walls: Sandbox
) -> None:
    monkeypatch.setattr(files, "_SECONDS", 0.1)
    stuck = "    while x == 2:\n        pass\n    return x\n"
    row = EVAL | {"canonical_solution": stuck, "base_input": [[n] for n in range(5)], "plus_input": []}
    with caplog.at_level(logging.WARNING):
        (task,) = load(written(tmp_path, row)).values()
    assert [case.expected for case in (*task.data.visible, *task.data.hidden)] == [0, 1, 3, 4]
    assert "1 inputs are not used" in caplog.text


# ---- files --------------------------------------------------------------------------------------------------------


def asks(text: str) -> dict[str, str]:
    return EVAL | {"prompt": f'def f(x):\n    """{text}"""\n', "test": "def check(c):\n    assert c(1) == 2\n"}


def test_a_file_is_cut_by_its_texts_and_a_folder_by_its_files(tmp_path: Path) -> None:
    many = [asks(f"text {number}") for number in range(60)]
    whole = written(tmp_path, *many, many[0])
    config = TaskSettings(source=str(whole))
    parts = {split: {task.prompt for task in build(config, split)} for split in SPLITS}
    assert sum(map(len, parts.values())) == 60 and all(len(found) >= 5 for found in parts.values())
    folder = tmp_path / "folder"
    folder.mkdir()
    written(folder, *many[:10], name="train.jsonl")
    (folder / "test.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, many[5:20])).encode()))
    parts = {split: {t.prompt for t in build(TaskSettings(source=str(folder)), split)} for split in SPLITS}
    # What stands in both is tested, not trained on.
    assert [len(parts[split]) for split in SPLITS] == [5, 0, 15] and not parts["train"] & parts["test"]
    few = build(TaskSettings(source=str(folder), held_out_tasks=3), "test")
    assert len(few) == 3 and few.find(few[2].id) == few[2]


def test_languages_of_a_file(tmp_path: Path) -> None:
    both = written(tmp_path, asks("double"), {**asks("加倍"), "prompt": "# 加倍\ndef f(x):\n    ...\n"})
    assert {task.language for task in load(both).values()} == {"en", "zh"}
    assert {task.language for task in load(both, languages=("zh",)).values()} == {"zh"}


BAD: list[tuple[object, str]] = [
    ("{", "line 1 is no JSON"),
    ({"a": 1}, "neither 'entry_point' .* nor 'test_list'"),
    (EVAL, "has no 'test'"),
    (EVAL | {"entry_point": "f(1); import os"}, "must be the name of a function"),
    (EVAL | {"entry_point": ["f"]}, "'entry_point' must be a text"),
    (EVAL | {"test": "\ud800"}, "characters that no file can hold"),
    (EVAL | {"test": "a" * (MOST_TEXT + 1)}, "at most 256 Ki characters"),
    (EVAL | {"base_input": {"a": 1}}, "list of lists of arguments"),
    (EVAL | {"base_input": [1]}, "list of lists of arguments"),
    (EVAL | {"base_input": [[1]], "atol": "much"}, "'atol' must be a number"),
    ({"text": "t", "code": "x = 1", "test_list": ["assert f(1) == 1"]}, "no function of 'code' is called"),
    ({"text": "t", "code": "def f(): pass", "test_list": "f()"}, "'test_list' must be a list of texts"),
    ({"text": "t", "code": "def f(): pass", "test_list": [1]}, "'test_list' must be a text"),
    (
        {"text": "t", "code": "def f(a=" + "-" * 900 + "1): pass", "test_list": ["f()"]},
        "nested too deep|no function of",
    ),
    (EVAL | {"test": "def check(c):\n    assert c(1) > 1\n"}, "no task that can be used; no comparison"),
    (EVAL | {"base_input": []}, "no task that can be used; no checks"),
    ("", "no task that can be used$"),
]


@pytest.mark.parametrize(("row", "message"), BAD)
def test_a_bad_row_is_one_line(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        load(written(tmp_path, row))
    assert "\n" not in str(raised.value) and "some.jsonl" in str(raised.value)


def test_no_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("none.jsonl", "no source .* use generated"),
        ("tasks.txt", "no source .* use generated"),
        ("folder", "holds none of train.jsonl"),
    ):
        with pytest.raises(SettingsError, match=message) as raised:
            load(tmp_path / name)
        assert "\n" not in str(raised.value)
    assert len(load(written(tmp_path, asks("good")))) == 1
