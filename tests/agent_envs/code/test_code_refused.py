"""What is refused in one line: settings, a task that cannot be graded, a machine without a sandbox."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tasks import do, started

from agent_envs.actions import render
from agent_envs.code.config import CodeConfig
from agent_envs.code.task import CodeTask
from agent_envs.core import SettingsError, Task

_HERE = Path(__file__).parent
_PROJECT = next(folder for folder in _HERE.parents if (folder / "pyproject.toml").exists())


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"sandbox": "jail"}, "code: unknown sandbox 'jail': use auto, namespace, landlock, docker, unsafe-process"),
        ({"turns": 50}, "code: turns must be from 1 to 40, not 50"),
        ({"memory_mb": 82}, "code: memory_mb must be at least 96, not 82"),
        ({"skill": 1.0}, "code: skill must lie between 0 and 1, not 1.0"),
        ({"case_seconds": 0.0}, "code: case_seconds must be from 0.02 to 10, not 0.0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        CodeConfig(**settings)
    assert str(refusal.value) == line


def test_a_task_without_checks_for_the_host_is_refused() -> None:
    data = CodeTask("do it", {"main.py": ""}, (), (), grader="import main")
    task = Task("odd", "train", "do it", data=data)
    with pytest.raises(SettingsError, match=r"task odd has no checks for the host: use --code\.grader in-process"):
        started(task)
    env = started(task, grader="in-process")
    do(env, "CREATE", "x.py", "")
    assert env.step(render("SUBMIT"))[1] == 1.0


@pytest.mark.parametrize(
    ("lacks", "name", "said"),
    [
        ("user namespaces", "namespace", "make user namespaces"),
        ("landlock", "landlock", "this kernel has no Landlock"),
        ("user namespaces,landlock", "auto", "or choose docker"),
        ("nothing", "docker", "no docker engine answers"),
        ("temporary folder", "namespace", "no temporary folder can be written"),
    ],
)
def test_a_machine_without_a_sandbox_is_refused_in_one_line(lacks: str, name: str, said: str) -> None:
    if lacks == "temporary folder" and os.geteuid() != 0:
        pytest.skip("only root can make it so")
    if name == "docker":
        pytest.importorskip("docker")
    status, out, errors = program(lacks, name)
    assert status == 2 and out == "" and "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("error: no sandbox: ") and said in errors.splitlines()[-1], errors


def test_control_a_machine_that_lacks_nothing_is_not_refused() -> None:
    assert program("nothing", "auto")[:2] == (0, "namespace\n")


def program(lacks: str, name: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a program that prepares the environment where something is missing."""
    paths = os.pathsep.join(map(str, (_HERE, _HERE / "sandbox", _PROJECT)))
    done = subprocess.run(
        [sys.executable, str(_HERE / "refused_env.py"), lacks, name],
        capture_output=True, text=True, timeout=120, cwd="/",
        env={**os.environ, "PYTHONPATH": paths, "DOCKER_HOST": "unix:///nowhere/docker.sock"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
