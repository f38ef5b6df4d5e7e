"""A package outside the repository adds an algorithm: it is built, installed and trained; and docs/ shows all of it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import algorithms
from agent_envs import plugins
from algorithms import ALGORITHMS, algorithm_class

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "tests" / "plugin"
SETTINGS = """
env: identity
algo: imitation
updates: 12
episodes: 64
minibatches: 4
eval_every: 0
test_tasks: 43
react: {max_action_tokens: 16, max_tokens: 256}
pretrain: {flaw: 0.5, demonstrations: 200, steps: 200, shape: {width: 64, mlp: 128}}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed the package into, without a network."""
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, place / "source", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", str(place / "installed"), str(place / "source")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return place / "installed"


def train(path: str, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    (folder / "settings.yaml").write_text(SETTINGS)
    program = [sys.executable, str(ROOT / "runners" / "train.py"), "--config", "settings.yaml", "--out", "run", *argv]
    environment = os.environ | {"PYTHONPATH": path, "TURNWISE_CACHE": str(folder / "cache")}
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.runs
def test_it_trains(installed: Path, tmp_path: Path) -> None:
    done = train(str(installed), tmp_path, "--imitation.group", "8")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["imitated_tokens"] > 0 for row in rows if row["kind"] == "update"] == [True] * 12
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["final"]["sampled"]["mean"] > summary["start"]["sampled"]["mean"] + 0.2
    assert "group: 8" in (tmp_path / "run" / "config.yaml").read_text()


def test_without_the_package_its_name_is_unknown(tmp_path: Path) -> None:
    done = train("", tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: unknown algorithm 'imitation'; there are ")
    assert not (tmp_path / "run").exists() and not (tmp_path / "cache").exists()


BROKEN = {
    "import": ("import turnwise_no_such_module", "cannot be imported (ModuleNotFoundError: No module named"),
    "syntax": ("def (:", "cannot be imported (SyntaxError"),
    "raises": ("raise SystemError('a\\nb')", "cannot be imported (SystemError: a b): fix or uninstall it"),
    "missing": ("", "cannot be imported (AttributeError"),
    "function": ("def Mine(): pass", "is not a subclass of algorithms.Algorithm"),
    "stranger": ("class Mine: pass", "is not a subclass of algorithms.Algorithm"),
    "plain": (
        "class Mine(Algorithm): credit = loss = None",
        "is not a frozen dataclass: write @dataclass(frozen=True)",
    ),
    "thawed": ("@dataclass\nclass Mine(Algorithm): credit = loss = None", "is not a frozen dataclass"),
    "heir": ("class Mine(ALGORITHMS['grpo']): pass", "is not a frozen dataclass"),
    "abstract": ("@dataclass(frozen=True)\nclass Mine(Algorithm): pass", "lacks credit and loss"),
    "bare": (
        "@dataclass(frozen=True)\nclass Mine(Algorithm):\n    credit = loss = None\n    lr: float",
        "has no default for lr: every setting needs one",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_one_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, says = BROKEN[case]
    header = "from dataclasses import dataclass\nfrom algorithms import ALGORITHMS, Algorithm"
    (tmp_path / f"broken_{case}.py").write_text(f"{header}\n{code}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("mine", f"broken_{case}:Mine", algorithms.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "installed", lambda group: [point])
    with pytest.raises(ValueError, match=re.escape(says)) as raised:
        algorithm_class("mine")
    assert str(raised.value).startswith(f"algorithm 'mine' (broken_{case}:Mine)") and "\n" not in str(raised.value)
    assert algorithm_class("grpo") is ALGORITHMS["grpo"], "nothing else is touched by it"


def test_the_program_says_so_without_a_traceback(installed: Path, tmp_path: Path) -> None:
    broken = tmp_path / "installed"
    shutil.copytree(installed, broken)
    (broken / "turnwise_imitation.py").write_text("import turnwise_no_such_module\n")
    done = train(str(broken), tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: algorithm 'imitation' (turnwise_imitation:Imitation of the package turnwise-")


def test_the_page_shows_the_whole_package() -> None:
    """What docs/add-an-algorithm.md tells to write is the package that is trained above, in at most 40 lines."""
    page = (ROOT / "docs" / "add-an-algorithm.md").read_text("utf-8")
    (code,), (project,) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "toml"))
    assert code == (PLUGIN / "turnwise_imitation.py").read_text("utf-8")
    assert tomllib.loads(project) == tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 40
