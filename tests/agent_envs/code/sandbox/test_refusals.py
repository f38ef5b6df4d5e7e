"""What a machine does not allow is one clear line and exit status 2, and nothing is fallen back to in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import opened

from agent_envs.code.sandbox import Sandbox, SandboxUnavailable, choose, probe
from agent_envs.code.sandbox.choose import NAMES, open_sandbox
from agent_envs.core import SettingsError

pytestmark = pytest.mark.walls

_HERE = Path(__file__).parent
_PROJECT = next(folder for folder in _HERE.parents if (folder / "pyproject.toml").exists())


def shown(lacks: str, name: str, **environment: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the program that opens a sandbox where something is missing."""
    paths = os.pathsep.join([str(_HERE), str(_PROJECT)])
    done = subprocess.run(
        [sys.executable, str(_HERE / "refused_main.py"), lacks, name],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    opened("namespace").close()
    opened("landlock").close()


@pytest.mark.parametrize(
    ("lacks", "name", "lines"),
    [
        (
            "user namespaces",
            "namespace",
            ["make user namespaces (unshare: Operation not permitted)", "sysctl kernel.unpriv"],
        ),
        (
            "more user namespaces",
            "namespace",
            ["make user namespaces (unshare: No space left", "user.max_user_namespaces=10000"],
        ),
        (
            "mounts",
            "namespace",
            ["mount a file system in a user namespace (mount on /: Permission denied)", "apparmor"],
        ),
        ("landlock", "landlock", ["this kernel has no Landlock", "6.12"]),
        ("user namespaces,landlock", "auto", ["namespace: this system", "landlock: this kernel", "or choose docker"]),
        ("nothing", "docker", ["no docker engine answers", "start one (dockerd), or set DOCKER_HOST"]),
    ],
)
def test_what_is_missing_is_one_line_with_its_remedy(lacks: str, name: str, lines: list[str]) -> None:
    if name == "docker":
        pytest.importorskip("docker")
    status, out, errors = shown(lacks, name, DOCKER_HOST="unix:///nowhere/docker.sock")
    last = errors.splitlines()[-1]
    assert status == 2 and out == "" and "Traceback" not in errors
    assert last.startswith("error: no sandbox: ") and all(line in last for line in lines), last
    assert len(errors.splitlines()) == (3 if name == "auto" else 1), errors  # auto says of each what it lacks


@pytest.mark.parametrize("name", ["namespace", "landlock"])
def test_a_temporary_folder_that_cannot_be_written(name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make it so")
    status, _, errors = shown("temporary folder", name)
    assert status == 2 and len(errors.splitlines()) == 1
    assert "no temporary folder can be written" in errors and "set TMPDIR" in errors


@pytest.mark.parametrize("name", ["namespace", "landlock"])
def test_root_that_cannot_become_another_user_is_refused(name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be refused this")
    status, _, errors = shown("setuid", name)
    assert status == 2 and len(errors.splitlines()) == 1
    assert "may not become another user" in errors or "cannot be read by any other user" in errors


def test_auto_takes_the_next_and_says_so() -> None:
    status, out, errors = shown("user namespaces", "auto")
    assert status == 0 and out.startswith("backend:   landlock\n")
    (line,) = errors.splitlines()
    assert line.startswith(
        "sandbox: not namespace: this system does not let the sandbox make user namespaces (unshare:"
    )


def test_nothing_is_missing_here() -> None:  # the control of them all
    status, out, errors = shown("nothing", "auto")
    assert status == 0 and out.startswith("backend:   namespace\n") and errors == ""


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(SandboxUnavailable, match=r"pip install 'turnwise\[docker\]'"):
        open_sandbox("docker")


@pytest.mark.parametrize(("platform", "line"), [("darwin", "no namespaces and no Landlock on darwin")])
def test_another_system(platform: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(SandboxUnavailable, match=line):
        open_sandbox("namespace")


def test_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*here[:4], "riscv64")))
    with pytest.raises(SandboxUnavailable, match="no column for riscv64"):
        open_sandbox("namespace")


def test_an_unknown_name() -> None:
    with pytest.raises(SettingsError, match="unknown sandbox 'none': use auto, namespace, landlock, docker, unsafe-"):
        open_sandbox("none")
    assert "none" not in NAMES


@pytest.fixture
def open_wall() -> Iterator[Sandbox]:
    """One that says it is safe, and is not."""
    with opened("unsafe-process") as sandbox:
        sandbox.capabilities = replace(sandbox.capabilities, safe=True)
        yield sandbox


def test_the_probe_sees_an_open_wall(open_wall: Sandbox) -> None:
    with pytest.raises(
        SandboxUnavailable, match=r"unsafe-process: a probe could read a file of the host: it is not safe"
    ):
        probe.probe(open_wall)


def test_every_wall_that_is_open_is_seen(open_wall: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("word")
    secret.chmod(0o666)
    assert probe._did(open_wall, "word", str(secret)) == [
        "read a file of the host",
        "write a file of the host",
        "read the reference solutions of the coding tasks",
        "connect to this machine",
        "connect to a socket of another program",
        "signal a process of the host",
        "have more processes than it may",
    ]


def test_a_probe_that_does_not_run_is_a_refusal(open_wall: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PROGRAM", "print('all is well')")
    with pytest.raises(SandboxUnavailable, match="the probe did not run"):
        probe.probe(open_wall)


def test_a_sandbox_that_fails_its_probe_is_closed(open_wall: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choose._MAKERS, "namespace", lambda limits, workers: open_wall)
    with pytest.raises(SandboxUnavailable):
        open_sandbox("namespace")
    with pytest.raises(RuntimeError, match="closed"):
        open_wall.run(["true"])
