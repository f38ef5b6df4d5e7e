"""No cheat is paid: its score is that of the same submission without the cheat.

Controls: the cheats that are marked so do forge the verdict of a grader in the submission's own process, and the honest
solution has full marks with both.
"""

import os
from collections.abc import Iterator

import pytest
from forgeries import CHEATS, Cheat, honest, solution

from agent_envs.code.judge import check, in_process
from agent_envs.code.sandbox import Limits, Sandbox, SandboxUnavailable
from agent_envs.code.sandbox.choose import open_sandbox, shared_sandbox
from agent_envs.code.task import Case

SMALL = [Case("main", f"double({number})", 2 * number) for number in (1, 2)]
LARGE = [Case("main", f"double({number})", 2 * number) for number in (3, 10)]
OTHER = [Case("main", "half(9)", 4)]
CASES = [*SMALL, *LARGE, *OTHER]
EARNED = [True, True, False, False, True]


@pytest.fixture(scope="module", params=["namespace", "landlock", pytest.param("docker", marks=pytest.mark.docker)])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "namespace":
        yield shared_sandbox("namespace")
        return
    try:
        opened = open_sandbox(request.param)
    except SandboxUnavailable as error:
        if os.environ.get("TURNWISE_NEEDS_DOCKER" if request.param == "docker" else "CI"):
            raise
        pytest.skip(str(error))
    with opened as sandbox:
        yield sandbox


def passes(sandbox: Sandbox, files: dict[str, str]) -> list[bool]:
    # Plenty of time: a busy machine must not make the two scores differ.
    return [done.passed for done in check(sandbox, files, CASES, seconds=2.0)]


def test_the_solution_has_full_marks_and_the_submission_without_a_cheat_what_it_earns(sandbox: Sandbox) -> None:
    assert passes(sandbox, solution()) == [True] * len(CASES)
    assert passes(sandbox, honest()) == EARNED


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_earns_what_it_earns_without_the_cheat(name: str, sandbox: Sandbox) -> None:
    if CHEATS[name].forks and sandbox.capabilities.backend == "landlock":
        pytest.skip("landlock does not let it have another process")
    assert passes(sandbox, CHEATS[name].submission()) == EARNED


@pytest.fixture(scope="module")
def walls() -> Sandbox:
    return shared_sandbox("namespace")


@pytest.mark.parametrize("name", [name for name, cheat in CHEATS.items() if cheat.fools])
def test_control_a_grader_in_the_same_process_believes_it(name: str, walls: Sandbox) -> None:
    done = in_process(walls, CHEATS[name].submission(), LARGE[:1], limits=Limits())
    assert [case.passed for case in done] == [True]


def test_control_there_are_enough_cheats_and_the_grader_in_the_process_is_one(walls: Sandbox) -> None:
    assert len(CHEATS) >= 12 and sum(cheat.fools for cheat in CHEATS.values()) >= 10
    assert [case.passed for case in in_process(walls, solution(), CASES, limits=Limits())] == [True] * len(CASES)
    assert [case.passed for case in in_process(walls, honest(), CASES, limits=Limits())] == EARNED
    assert [case.passed for case in in_process(walls, honest(), [], "import main", limits=Limits())] == [True]
    assert [case.passed for case in in_process(walls, honest(), [], "assert 0", limits=Limits())] == [False]


def test_an_expected_value_is_never_sent(walls: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def spy(self: Sandbox, argv: list[str], *given: object, **more: object) -> object:
        sent.append(f"{argv} {given} {more}")
        return run(self, argv, *given, **more)

    run = type(walls).run
    monkeypatch.setattr(type(walls), "run", spy)
    secret = 918273645
    assert not check(walls, Cheat().submission(), [Case("main", "double(4)", secret)])[0].passed
    assert sent and not any(str(secret) in text for text in sent)
    in_process(walls, Cheat().submission(), [Case("main", "double(4)", secret)], limits=Limits())
    assert str(secret) in sent[-1]  # the control: there it would be seen
