"""The matrix of `matrix.py` on the walls that need no engine; `tests/long` has it as an ordinary user, too."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import attack_run
import matrix
import pytest
from attacks import Attack, told
from matrix import PROGRAMS, TRIALS

from agent_envs.code.sandbox.choose import open_sandbox

pytestmark = pytest.mark.walls

_ALL = [*(attack.name for attack in PROGRAMS), *(f"{trial.family}: {trial.name}" for trial in TRIALS)]
_CONTROLS = [attack.name for attack in PROGRAMS if attack.control]
_CONTROLS += [f"{trial.family}: {trial.name}" for trial in TRIALS if trial.control is not None]
_WALLS = ["namespace", "landlock", pytest.param("docker", marks=pytest.mark.docker)]


@cache
def _found(wall: str) -> dict[str, Any]:
    found = matrix.on_wall(wall)
    if "unavailable" in found and not os.environ.get("TURNWISE_NEEDS_DOCKER" if wall == "docker" else "CI"):
        pytest.skip(found["unavailable"])
    return found


@cache
def _works() -> dict[str, bool]:
    return matrix.controls()


@pytest.mark.parametrize("wall", _WALLS)
def test_everything_is_held_but_what_is_said_not_to_be(wall: str) -> None:
    found = _found(wall)
    assert set(found["outcomes"]) == set(_ALL)
    assert matrix.through(wall, found) == {}


@pytest.mark.parametrize("wall", _WALLS)
def test_nothing_is_left(wall: str) -> None:
    assert _found(wall)["left"] == []


@pytest.mark.parametrize("name", _CONTROLS)
def test_control_it_works_where_nothing_holds_it(name: str) -> None:
    assert _works()[name]


def test_there_are_many_and_each_is_another_one() -> None:
    assert len(PROGRAMS) >= 60 and len(_ALL) == len(set(_ALL)) and len(_CONTROLS) >= 60


def test_their_numbers_are_those_of_the_documents() -> None:
    text = (Path(__file__).resolve().parents[4] / "docs/sandbox.md").read_text("utf-8")
    assert f"{len(PROGRAMS)} further programs and {len(TRIALS)} submissions" in text
    numbers = "; ".join(str(len(attacks)) for attacks in list(matrix.FAMILIES.values())[:3])
    assert f"| {numbers} |" in text and f"{len(_CONTROLS)} of {len(_CONTROLS)} worked" in text


def test_what_did_not_run_or_got_through_is_told() -> None:
    outcomes = dict.fromkeys(_ALL, "")
    known = next(iter(matrix.KNOWN["docker"]))
    for name, got in ((_ALL[0], "NOT RUN: it did not"), (_ALL[1], "it did"), (known, "")):
        assert set(matrix.through("docker", {"outcomes": {**outcomes, known: "it did", name: got}})) == {name}
    assert matrix.through("docker", {"outcomes": {**outcomes, known: "NOT RUN"}}) == {known: "NOT RUN"}


@pytest.mark.parametrize(("naps", "outcome"), [(0.8, ""), (30, "NOT RUN: ")])
def test_what_the_limit_ends_before_it_has_tried_has_a_second_try_and_no_third(naps: float, outcome: str) -> None:
    slow = Attack("slow", f"time.sleep({naps})\nsay(tried=False)\n", told("tried", "it did"), seconds=0.6)
    with open_sandbox("unsafe-process", workers=1) as sandbox:
        assert attack_run.outcome(sandbox, slow)[:9] == outcome
