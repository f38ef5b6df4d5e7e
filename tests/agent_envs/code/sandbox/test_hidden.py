"""Installed packages, and with them the reference solutions of the coding tasks, cannot be read inside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import opened

pytestmark = pytest.mark.walls

_PROGRAM = """
import json, os, sys, sysconfig
place = sysconfig.get_path("purelib") + "/agent_envs/code/tasks/programs"
def read(path):
    try:
        return open(path).read()
    except OSError:
        return ""
try:
    names = os.listdir(place)
except OSError:
    names = []
names += ["lists.py", "classes.py", "../known.py"]
found = [name for name in names if read(place + "/" + name)]
try:
    import agent_envs.code.tasks.known
    found.append("an import")
except ImportError:
    pass
print(json.dumps([found, bool(read(os.__file__))]))
"""
_MAIN = """
import sys
from agent_envs.code.sandbox.choose import _MAKERS
from agent_envs.code.sandbox import Limits
with _MAKERS[sys.argv[1]](Limits(), 1) as sandbox:
    result = sandbox.run(["python", "-c", sys.argv[2]])
print(result.stdout.decode() or result.stderr.decode())
"""


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """An interpreter with the package in its own site-packages, as in an image or an environment of conda.

    It does not lie below /tmp, where a run has its own folder.
    """
    with tempfile.TemporaryDirectory(prefix="turnwise-base-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield make(Path(folder))


def make(top: Path) -> Path:
    """Makes the interpreter; returns its program."""
    library = Path(sysconfig.get_path("stdlib"))
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    left_out = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__", "config-*", "ensurepip")
    shutil.copytree(library, top / "lib" / name, ignore=left_out, symlinks=True)
    (top / "bin").mkdir()
    shutil.copy2(os.path.realpath(sys.executable), top / "bin" / name)
    for shared in Path(sysconfig.get_config_var("LIBDIR") or "/none").glob(f"lib{name}*.so*"):
        shutil.copy2(shared, top / "lib")
    packages = top / "lib" / name / "site-packages"
    packages.mkdir()
    install(top / "source", packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return top / "bin" / name


def install(source: Path, packages: Path) -> None:
    """Installs this project as `pip install .` does, from a copy of it, into the folder ``packages``."""
    own = Path(__file__).resolve().parents[4]
    source.mkdir()
    for name in ("agent_envs", "agents", "algorithms", "runners"):
        shutil.copytree(own / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(own / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-compile"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(packages), str(source)]
    done = subprocess.run([*pip, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (packages / "agent_envs/code/tasks/known.py").is_file()
    shutil.rmtree(source)


def inside(base: Path, wall: str) -> tuple[list[str], bool]:
    """(what of the reference solutions can be read, whether the standard library can)."""
    done = subprocess.run(
        [base, "-c", _MAIN, wall, _PROGRAM], capture_output=True, text=True, cwd="/", env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("["), done.stdout + done.stderr
    found, library = json.loads(done.stdout)
    return found, library


@pytest.mark.parametrize("wall", ["namespace", "landlock"])
def test_solutions_of_a_package_in_the_base_interpreter_are_hidden(base: Path, wall: str) -> None:
    assert inside(base, wall) == ([], True)


def test_without_a_wall_they_can_be_read(base: Path) -> None:
    found, library = inside(base, "unsafe-process")
    assert "lists.py" in found and "../known.py" in found and library


_UNHIDDEN = """
import sys
from agent_envs.code.sandbox import SandboxUnavailable, warm
from agent_envs.code.sandbox.choose import open_sandbox
if sys.argv[2] == "shown":
    warm._hidden = lambda readable: []
try:
    open_sandbox(sys.argv[1]).close()
    print("opened")
except SandboxUnavailable as error:
    print(error)
"""


@pytest.mark.parametrize("wall", ["namespace", "landlock"])
def test_a_sandbox_in_which_they_can_be_read_is_not_opened(base: Path, wall: str) -> None:
    def said(how: str) -> str:
        words = [base, "-c", _UNHIDDEN, wall, how]
        done = subprocess.run(words, capture_output=True, text=True, cwd="/", env={"PATH": os.environ["PATH"]})
        return done.stdout + done.stderr

    assert "a probe could read the reference solutions of the coding tasks" in said("shown")
    assert said("hidden") == "opened\n"


@pytest.mark.parametrize("wall", ["namespace", "landlock"])
def test_so_it_is_where_the_library_of_the_interpreter_is_a_link(base: Path, wall: str) -> None:
    library, real = base.parents[1] / "lib", base.parents[1] / "real"
    library.rename(real)
    library.symlink_to("real")
    try:
        assert inside(base, wall) == ([], True)
    finally:
        library.unlink()
        real.rename(library)


@pytest.mark.docker
def test_no_package_is_in_the_image() -> None:
    with opened("docker") as sandbox:
        look = "import os, sys; print([w for w, d, f in os.walk('/') if w.endswith('-packages') or 'agent_envs' in d])"
        assert sandbox.run(["python", "-c", look]).stdout == b"[]\n"
