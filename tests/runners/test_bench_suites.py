"""The suites never change, and their tasks are those of this machine; any other task is noticed and refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from bench_cases import small_suite
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from agent_envs.core import Task
from runners.benching.fingerprints import canonical, fingerprint, fixed_tasks, made
from runners.benching.suites import SUITES, Suite
from runners.command_line.errors import UserError

CONTENT = {
    "wiki-1": "2972c5d9961422a8161ae47a63630d6b478ebbf03fdef60ddbcb01077ad95edc",
    "code-1": "1683dbbb02dcd4f49bc6f9b7fc9d5f57a2fdca97a49cef6c879a950ec60544ff",
    "third-party-1": "f99c069cc4078c509abe76af0d18949545d0a79a45099e9543bd92e63d1916f2",
    "tau2-1": "5293c5bd948c54502bedfbd285004b1da3c8ee60850382d63c999a2c8ebad8fb",
    "third-party-2": "eb90a8553d30894eed010a650248017214049163175e70fac5265eda77e1bbd8",
}
"""Hash of each suite. A suite with another hash is another suite: give it the next number, and add a line here."""
EXTRAS = {
    "babyai": "minigrid",
    "reasoning_gym": "reasoning_gym",
    "tau2": "tau2",
    "textworld": "textworld",
    "textworld_express": "textworld_express",
}
LOCK = Path(__file__).resolve().parents[2] / "benchmarks" / "lock.txt"


def test_no_suite_has_changed() -> None:
    assert {name: suite.content for name, suite in SUITES.items()} == CONTENT


@pytest.mark.parametrize("change", [{"tasks": 99}, {"settings": {"seed": 1}}, {"fingerprint": "0"}, {"split": "valid"}])
def test_any_change_of_a_suite_is_noticed(change: dict[str, Any]) -> None:
    suite = SUITES["wiki-1"]
    (entry,) = suite.entries
    assert replace(suite, entries=(replace(entry, **change),)).content != suite.content


MARKS = {"third-party-2": [pytest.mark.runs], "tau2-1": [pytest.mark.adapters]}
"""Of suites whose games take a minute to make, or whose package is tested by itself."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SUITES])
def test_the_tasks_of_this_machine_are_the_suites(name: str) -> None:
    suite = SUITES[name]
    for module in {EXTRAS[entry.env] for entry in suite.entries if entry.env in EXTRAS}:
        if find_spec(module) is None and "CI" not in os.environ:
            pytest.skip(f"{module} is not installed")
    if "textworld_express" in {entry.env for entry in suite.entries} and not (which("java") or "CI" in os.environ):
        pytest.skip("java is not installed")
    fixed = fixed_tasks(suite)
    assert [len(one.tasks) for one in fixed] == [entry.tasks for entry in suite.entries]
    assert len({entry.name for entry in suite.entries}) == len(suite.entries)


def test_the_lock_has_every_package_that_makes_tasks() -> None:
    lines = [line for line in LOCK.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    locked = [Requirement(line) for line in lines]
    made_by = {entry.package for suite in SUITES.values() for entry in suite.entries if entry.package}
    assert made_by <= {f"{one.name} {str(one.specifier).removeprefix('==')}" for one in locked}
    allowed = [Requirement(line) for line in metadata.requires("turnwise") or ()]
    ranges = {one.name: one.specifier for one in allowed}
    for one in locked:
        (pin,) = one.specifier
        assert pin.operator == "==" and ranges.get(one.name, SpecifierSet()).contains(pin.version), one


def changed_setting(suite: Suite) -> Suite:
    short, long = suite.entries
    return replace(suite, entries=(short, replace(long, settings={**long.settings, "max_turns": 7})))


def other_words(suite: Suite) -> Suite:
    short, long = suite.entries
    return replace(suite, entries=(replace(short, settings={"length": 2, "words": tuple("abcdefghijkl")}), long))


def test_other_tasks_are_refused() -> None:
    suite = small_suite()
    fixed_tasks(changed_setting(suite))  # a turn limit changes neither the instructions nor the tasks
    with pytest.raises(UserError, match="small-1: the tasks of short on this machine are not those of the suite"):
        fixed_tasks(other_words(suite))


def test_the_version_of_an_outside_package_is_named() -> None:
    suite = other_words(small_suite())
    short, long = suite.entries
    suite = replace(suite, entries=(replace(short, package="numpy 0.1"), long))
    with pytest.raises(UserError, match=r"; they were made by numpy 0\.1, and \d+\.\S+ is installed: no row"):
        fixed_tasks(suite)


TASK = Task("a-1", "test", "Say it.", data={"answer": "red"})


@pytest.mark.parametrize(
    "change",
    [
        lambda t: replace(t, id="a-2"),
        lambda t: replace(t, prompt="Say it!"),
        lambda t: replace(t, data={"answer": "blue"}),
        lambda t: replace(t, language="zh"),
        lambda t: replace(t, level=2),
    ],
)
def test_any_part_of_a_task_is_in_the_fingerprint(change: Callable[[Task], Task]) -> None:
    env = made(small_suite().entries[0]).env
    other = replace(TASK, id="b")
    before = fingerprint(env, [TASK, other])
    assert fingerprint(env, [replace(TASK), other]) == before
    assert fingerprint(env, [change(TASK), other]) != before
    assert fingerprint(env, [other, TASK]) != before, "their order too"


def test_payloads_have_one_order() -> None:
    assert canonical({"b": {3, 1, 2}, "a": (1, TASK)}) == canonical({"a": [1, TASK], "b": {2, 3, 1}})
    assert canonical({"a": 1}) != canonical({"a": 2})


def test_fingerprints_are_the_same_in_every_process() -> None:
    code = "from runners.benching.fingerprints import fixed_tasks; from runners.benching.suites import SUITES; "
    code += "print(len(fixed_tasks(SUITES['wiki-1'])))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed}, timeout=120,
        )  # fmt: skip
        assert done.stdout == "1\n", done.stderr
