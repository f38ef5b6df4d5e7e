"""The list of bugs: it is that of the library, and each bug does what the list says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from agent_envs.code.sandbox import Sandbox
from agent_envs.code.task import Case
from agent_envs.code.tasks import bugs
from agent_envs.code.tasks.bugs import LEAST, PAIRS, bugs_of, find, operators_of
from agent_envs.code.tasks.catalogue import Program, programs
from agent_envs.code.tasks.mutate import mutants
from agent_envs.code.tasks.settings import Operator
from agent_envs.code.tasks.trial import BUDGET, failures
from agent_envs.core import SPLITS

ALL = list(programs().values())
CASES = [Case("main", "f(1)", 1), Case("main", "f(2)", 2), Case("main", "f(3)", 3)]


def test_the_list_is_that_of_the_library() -> None:
    for program in ALL:
        listed = bugs_of(program)
        assert len(listed) >= 5
        assert [bug.operators for bug in listed] == list(operators_of(program))
        for bug in listed:
            assert bug.failed.bit_count() >= LEAST and bug.failed < 1 << len(program.pool)
            files = bug.apply(program.files)
            changed = [name for name in files if files[name] != program.files[name]]
            assert changed == [name for name in program.files if name in dict(bug.edits)]
            for name, edit in bug.edits:
                rows = len(program.files[name].splitlines()) - len(files[name].splitlines())
                assert rows in (0, 1) and edit.line(program.files[name]) <= len(program.files[name].splitlines())


@pytest.mark.parametrize("program", ALL[::6], ids=lambda program: program.name)
def test_every_listed_bug_is_one_that_the_operators_make(program: Program) -> None:
    known = {name: set(mutants(text)) for name, text in program.files.items()}
    assert all(edit in known[name] for bug in bugs_of(program) for name, edit in bug.edits)


def test_every_split_has_every_kind_of_mistake() -> None:
    for split in SPLITS:
        count = Counter(kind for p in ALL if p.split == split for kinds in operators_of(p) for kind in kinds)
        assert set(count) == set(Operator)


def test_several_files_have_bugs_in_each_and_in_two() -> None:
    for program in ALL:
        if len(program.files) > 1:
            where = Counter(tuple(name for name, _ in bug.edits) for bug in bugs_of(program))
            assert {names[0] for names in where if len(names) == 1} >= {"helper.py"}
            pairs = sum(count for names, count in where.items() if len(names) == 2)
            assert 1 <= pairs <= PAIRS


def test_a_changed_program_is_refused() -> None:
    program = replace(ALL[0], files={"main.py": ALL[0].files["main.py"] + "\n"})
    with pytest.raises(ValueError, match="makes it again"):
        bugs_of(program)


@pytest.mark.parametrize("name", ["rotate", "Wallet", "fill_left", "tidy"])
def test_the_sandbox_finds_what_is_listed(name: str, walls: Sandbox) -> None:
    program = programs()[name]
    assert find(program, walls) == bugs_of(program)


def test_what_is_right_wrong_broken_and_without_end(walls: Sandbox) -> None:
    versions = [
        "def f(n):\n    return n\n",
        "def f(n):\n    return min(n, 2)\n",
        "def f(n):\n    return n if n < 3 else missing\n",
        "def f(n):\n    while n > 1:\n        pass\n    return n\n",
        "def f(n):\n    return f(n)\n",
    ]
    told = failures(walls, [{"main.py": text} for text in versions], CASES)
    assert told == ["===", "==x", "==!", "=tt", "!!!"]


def test_one_that_eats_memory_or_ends_the_run_costs_itself_only(walls: Sandbox) -> None:
    versions = [
        "def f(n):\n    return n\n",
        "def f(n):\n    return len('a' * 10 ** 9 * n)\n",
        "import os\ndef f(n):\n    os._exit(0)\n",
        "def f(n):\n    return n + 1\n",
    ]
    told = failures(walls, [{"main.py": text} for text in versions], CASES)
    assert told[0] == "===" and told[1] == "!!!" and told[2] is None and told[3] == "xxx"


def test_the_end_is_counted_in_lines_and_not_in_time(walls: Sandbox) -> None:
    text = "def f(n):\n    for i in range({}):\n        pass\n    return n\n"
    few, many = ({"main.py": text.format(count)} for count in (BUDGET // 4, BUDGET))
    assert failures(walls, [few, many], CASES) == ["===", "ttt"]


def test_imports_of_a_version_are_its_own(walls: Sandbox) -> None:
    main = "from helper import g\n\n\ndef f(n):\n    return g(n)\n"
    helpers = ["def g(n):\n    return n\n", "def g(n):\n    return 1\n"]
    told = failures(walls, [{"main.py": main, "helper.py": text} for text in helpers], CASES)
    assert told == ["===", "=xx"]


def test_the_file_has_a_line_for_each_program() -> None:
    rows = bugs._rows()
    assert list(rows) == [program.name for program in ALL]
