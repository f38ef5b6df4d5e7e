"""All generated coding tasks: gold earns all, every bug less, an empty file nothing; and the list is the sandbox's."""

import os
from collections.abc import Iterator

import pytest

from agent_envs.code.judge import check
from agent_envs.code.sandbox import Sandbox, SandboxUnavailable
from agent_envs.code.sandbox.choose import open_sandbox
from agent_envs.code.tasks.bugs import bugs_of, find
from agent_envs.code.tasks.catalogue import Program, programs
from agent_envs.code.tasks.stub import stub
from agent_envs.code.tasks.trial import failures

ALL = list(programs().values())


@pytest.fixture(scope="module")
def walls() -> Iterator[Sandbox]:
    try:
        with open_sandbox() as sandbox:
            yield sandbox
    except SandboxUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_gold_earns_all_and_nothing_earns_nothing(program: Program, walls: Sandbox) -> None:
    pool = program.pool
    assert all(case.passed for case in check(walls, program.files, pool))
    for text in (stub(program.files["main.py"]), ""):
        assert not any(case.passed for case in check(walls, {**program.files, "main.py": text}, pool))


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_every_bug_is_found_again_and_fails_what_the_list_says(program: Program, walls: Sandbox) -> None:
    listed = bugs_of(program)
    assert find(program, walls) == listed
    told = failures(walls, [bug.apply(program.files) for bug in listed] + [program.files], program.pool)
    assert told[-1] == "=" * len(program.pool)
    for bug, letters in zip(listed, told, strict=False):
        assert letters is not None and [bug.fails(at) for at in range(len(letters))] == [x != "=" for x in letters]


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_the_judge_says_of_bugs_what_the_list_says(program: Program, walls: Sandbox) -> None:
    # Bugs of every third kind of mistake: the sandbox was asked about all of them above.
    some = {bug.operators: bug for bug in bugs_of(program)}
    for bug in list(some.values())[::3]:
        passed = [case.passed for case in check(walls, bug.apply(program.files), program.pool)]
        assert passed == [not bug.fails(at) for at in range(len(passed))] and not all(passed)
