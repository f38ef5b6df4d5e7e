"""The hostile-input protocol: every attack on every wall that can be had here, also by a user without rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from attack_list import ATTACKS
from attack_run import World, as_ordinary_user, outcomes

pytestmark = pytest.mark.walls

_ROOT = os.geteuid() == 0
_WALLS = [(wall, user) for wall in ("namespace", "landlock") for user in ("this user", "an ordinary user")]
_EXCEPTIONS = {"landlock": {"many large files", "many files"}}
"""What may get through for a moment, as `Capabilities.exceptions` says."""
_CONTROLS = [attack for attack in ATTACKS if attack.control]
_BARE = [
    attack for attack in ATTACKS if attack.name in ("the environment of the host", "files that the host holds open")
]


@cache
def _found(wall: str, user: str) -> dict[str, Any]:
    if user == "an ordinary user":
        if not _ROOT:
            pytest.skip("this user is an ordinary one")
        found = as_ordinary_user(wall)
    else:
        found = outcomes(wall)
    if "unavailable" in found and not os.environ.get("CI"):
        pytest.skip(found["unavailable"])
    return found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize(("wall", "user"), _WALLS)
def test_it_is_held(wall: str, user: str, attack: Any) -> None:
    found = _found(wall, user)
    outcome = found["outcomes"][attack.name]
    assert not outcome.startswith("NOT RUN"), outcome
    if attack.name in _EXCEPTIONS.get(wall, ()):
        assert any("number of files and their total size" in line for line in found["exceptions"])
    else:
        assert outcome == ""


@pytest.mark.parametrize(("wall", "user"), _WALLS)
def test_nothing_is_left(wall: str, user: str) -> None:
    assert _found(wall, user)["left"] == []


@pytest.mark.parametrize(("wall", "user"), _WALLS)
def test_memory_is_bounded_and_by_what_is_told(wall: str, user: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = _found(wall, user)
    assert found["bound_mb"] <= (256 if found["total"] else 1024)
    with capsys.disabled():
        print(f"\n{wall}, {user}: at most {found['bound_mb']} MiB a run: {found['memory']}")


@pytest.mark.parametrize("attack", _CONTROLS, ids=lambda attack: attack.name)
def test_it_works_where_nothing_holds_it(attack: Any) -> None:
    outcome = _found("unsafe-process", "this user")["outcomes"][attack.name]
    assert outcome and not outcome.startswith("NOT RUN")


@pytest.mark.parametrize("attack", _BARE, ids=lambda attack: attack.name)
def test_it_works_in_a_bare_process(attack: Any) -> None:
    with World() as world:
        done = subprocess.run(
            [sys.executable, "-c", attack.source()],
            input=json.dumps(world.given(attack, control=True, own_first=False)).encode(),
            capture_output=True,
            pass_fds=(world.held,),
        )
    assert b'SAID {"found": true}' in done.stdout


def test_every_attack_has_a_control() -> None:
    without = {attack.name for attack in ATTACKS if not attack.control and attack not in _BARE}
    assert without == {  # why is said at each of them
        "spend the memory of what supervises it",
        "an answer of long names",
        "much memory in many processes",
        "a helper holds the output",
        "forge its result",
        "files that lead elsewhere",
    }
