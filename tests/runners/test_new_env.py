"""`turnwise new-env`: what it writes passes its own tests, style and types, and what cannot be written is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners import new_env
from runners.command_line.errors import UserError
from runners.scaffolding.scaffold import PLACES, TEMPLATE, write_env

ROOT = Path(__file__).resolve().parents[2]


def command(monkeypatch: pytest.MonkeyPatch, *argv: str) -> None:
    monkeypatch.setattr(sys, "argv", ["turnwise new-env", *argv])
    new_env.main()


def tool(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", *argv], cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


@pytest.fixture(scope="module", params=["lift", "my_2nd_env"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "out"
    files = write_env(request.param, folder)
    assert sorted(files) == sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) == len(PLACES) == len(list(TEMPLATE.iterdir()))
    return folder


def test_it_passes_its_own_tests(written: Path) -> None:
    done = tool(written, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_mistake_in_it_is_noticed_by_them(tmp_path: Path) -> None:
    write_env("broken", tmp_path / "out")
    file = tmp_path / "out" / "turnwise_broken" / "reward.py"
    file.write_text(file.read_text().replace("float(floor == goal)", "1.0"))
    assert tool(tmp_path / "out", "pytest", "-q", "-p", "no:cacheprovider", "tests").returncode == 1


def test_it_has_style_and_types(written: Path) -> None:
    for argv in (("ruff", "check", "--no-cache", "."), ("ruff", "format", "--no-cache", "--check", ".")):
        done = tool(written, *argv)
        assert done.returncode == 0, done.stdout + done.stderr
    left = [file for file in written.rglob("*") if file.is_file() and "$" in file.read_text()]
    assert not left, "a word of the template was not filled in"


def test_the_command_says_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command(monkeypatch, "my_env")
    *files, last = capsys.readouterr().out.splitlines()
    assert len(files) == len(PLACES) and all(Path(file).is_file() for file in files)
    assert last == "next: pip install -e turnwise-my-env, then turnwise train --env my_env --algo selfac"
    with pytest.raises(UserError, match="turnwise-my-env is not empty; name another folder with --out"):
        command(monkeypatch, "my_env")
    command(monkeypatch, "my_env", "--out", "elsewhere")
    assert (tmp_path / "elsewhere" / "pyproject.toml").is_file()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wiki", "there is an environment wiki already"),
        ("My-Env", "cannot be a name"),
        ("../evil", "cannot be a name"),
        ("class", "cannot be a name"),
        *((name, "names other settings") for name in ("chat", "lora", "seed", "selfac", "top", "vllm", "verifiers")),
        ("env_", "cannot be a name"),
        ("", "name the environment"),
    ],
)
def test_what_cannot_be_a_name_is_refused(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=says):
        command(monkeypatch, *([name] if name else []))
    assert not list(tmp_path.iterdir())
