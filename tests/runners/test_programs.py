"""The programs as a person starts them: one clear line for every mistake, from any folder, installed or not."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]
PACKAGES = ("agent_envs", "agents", "algorithms", "runners")
# Runs program after program in one process: importing torch takes most of the time of each.
DRIVER = """
import contextlib, io, json, runpy, sys, traceback
found = []
for program, argv in json.load(sys.stdin):
    sys.argv = [program, *argv]
    out, err = io.StringIO(), io.StringIO()
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as stop:
            status = stop.code
        except BaseException:
            traceback.print_exc()
            status = "traceback"
    found.append((status, out.getvalue(), err.getvalue()))
json.dump(found, sys.stdout)
"""
CASES: dict[str, tuple[str, list[str], str]] = {
    "bad flag": ("train", ["--epizodes", "8"], "unknown flag --epizodes: did you mean --episodes"),
    "bad value": ("train", ["--episodes", "many"], "--episodes"),
    "value out of range": ("train", ["--episodes", "0"], "--episodes must be at least 1"),
    "learning rate nan": ("train", ["--lr", "nan"], "lr must be from 0 to 100, not nan"),
    "learning rate below 0": ("train", ["--value-lr", "-1"], "--value-lr must be from 0 to 100, not -1.0"),
    "gradient norm 0": ("train", ["--max-grad-norm", "0"], "--max-grad-norm must be above 0, not 0.0"),
    "gradient norm nan": ("train", ["--max-grad-norm", "nan"], "--max-grad-norm must be above 0, not nan"),
    "temperature inf": ("train", ["--temperature", "inf"], "temperature must be above 0 and finite, not inf"),
    "no tokens": ("train", ["--react.max-tokens", "1"], "--react.max-tokens must be from 2 to 10000000, not 1"),
    "no tokens of an action": (
        "train",
        ["--react.max-action-tokens", "0"],
        "--react.max-action-tokens must be",
    ),
    "unknown dtype": ("train", ["--dtype", "float8"], "dtype must be one of auto, float32, bfloat16, float16"),
    "too many slots": ("train", ["--slots", "100000000"], "slots must be from 1 to 65536, not 100000000"),
    "too large a seed": ("train", ["--seed", "1" + "0" * 23], "seed must be from 0 to 9223372036854775807"),
    "too many threads": ("train", ["--threads", "1000000"], "threads must be from 1 to 1024, not 1000000"),
    "workers without a number": ("train", ["--workers", "ray"], "workers must be a number, or NAME:NUMBER"),
    "unknown workers": (
        "train",
        ["--env", "identity", "--workers", "proces:2", "--out", "{tmp}/w"],
        "did you mean process?",
    ),
    "workers of the own process": (
        "train",
        ["--env", "identity", "--workers", "local:2", "--out", "{tmp}/v"],
        "--workers 0, has no number",
    ),
    "no workers": ("train", ["--workers", "process:0"], "--workers 0, has no number"),
    "bad setting of the environment": ("train", ["--env", "identity", "--identity.length", "0"], "identity: "),
    "unknown environment": ("train", ["--env", "wikki"], "did you mean wiki?"),
    "unknown algorithm": ("train", ["--algo", "selfact"], "unknown algorithm 'selfact'"),
    "missing model": ("train", ["--env", "identity", "--model", "{tmp}/none", "--out", "{tmp}/a"], "no model at"),
    "empty model folder": ("train", ["--env", "identity", "--model", "{tmp}", "--out", "{tmp}/b"], "cannot load"),
    "file in the way": ("train", ["--env", "identity", "--out", "{tmp}/file/run"], "cannot write the folder"),
    "folder that cannot be made": ("train", ["--env", "identity", "--out", "/proc/run"], "cannot write the folder"),
    "used run folder": ("train", ["--env", "identity", "--out", "{tmp}"], "is not empty"),
    "groups that do not fit": (
        "train",
        ["--env", "identity", "--algo", "grpo", "--episodes", "12", "--out", "{tmp}/c"],
        "--episodes 12 must be a multiple of the group of 8",
    ),
    "unknown device": ("train", ["--env", "identity", "--device", "abacus", "--out", "{tmp}/d"], "--device abacus"),
    "missing settings file": ("train", ["--config", "{tmp}/none.yaml"], "cannot read"),
    "evaluate: missing model": (
        "evaluate",
        ["--env", "identity", "--tasks", "8", "--model", "{tmp}/none"],
        "no model at",
    ),
    "evaluate: unknown environment": ("evaluate", ["--env", "x"], "unknown environment 'x'"),
    "evaluate: bad flag": ("evaluate", ["--samples", "0"], "--samples must be from 1 to 10000"),
    "evaluate: bad temperature": (
        "evaluate",
        ["--temperature", "0"],
        "temperature must be above 0 and finite, not 0.0",
    ),
    "pretrain: bad flag": ("pretrain", ["--env", "identity", "--pretrain.step", "3"], "--pretrain.steps"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[object, str, str]]]:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "file").touch()
    runs = [
        (str(HERE / "runners" / f"{program}.py"), [a.replace("{tmp}", str(folder)) for a in argv])
        for program, argv, _ in CASES.values()
    ]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TURNWISE_CACHE": str(folder / "cache"), "PYTHONPATH": str(HERE)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    yield dict(zip(CASES, json.loads(done.stdout), strict=True))
    built = {path.name for path in (folder / "cache").glob("*")}
    assert built <= {"compiled"}, "a mistake is found before anything is built, but what is compiled beside the imports"


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_line_and_exit_status_2(case: str, answers: dict[str, tuple[object, str, str]]) -> None:
    status, _, err = answers[case]
    assert err.count("\n") == 1 and err.startswith("error: "), err
    assert CASES[case][2] in err
    assert status == 2


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project that nobody installed, and beside it another package that owns the name ``agents``."""
    place = tmp_path_factory.mktemp("copy")
    for name in PACKAGES:
        shutil.copytree(HERE / name, place / "project" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "site" / "agents").mkdir(parents=True)
    (place / "site" / "agents" / "__init__.py").write_text("class Agent: pass\n")
    return place


def python(place: Path, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_runs_uninstalled_beside_another_package_of_the_same_name(elsewhere: Path) -> None:
    assert python(elsewhere, "-c", "from agents import Agent", path=elsewhere / "site").returncode == 0
    done = python(elsewhere, "project/runners/train.py", "--env", "identity", "--help", path=elsewhere / "site")
    assert done.returncode == 0, done.stderr
    assert "--identity.length" in done.stdout and done.stderr == ""


def test_a_package_that_hides_ours_is_named(elsewhere: Path) -> None:
    start = f"import sys; sys.path.append({str(elsewhere / 'project')!r}); import runners; runners.check_install()"
    hidden = python(elsewhere, "-c", f"import agents; {start}", path=elsewhere / "site")
    assert hidden.returncode == 2
    assert hidden.stderr.startswith("error: the package 'agents' comes from") and hidden.stderr.count("\n") == 1
    free = python(elsewhere, "-c", start.replace("append(", "insert(0, "), path=elsewhere / "project")
    assert (free.returncode, free.stderr) == (0, "")


def test_what_is_not_installed_is_named(elsewhere: Path) -> None:
    start = f"import sys; sys.path.insert(0, {str(elsewhere / 'project')!r}); import runners; runners.check_install()"
    bare = python(elsewhere, "-S", "-c", start, path=elsewhere / "site")
    assert bare.returncode == 2
    assert bare.stderr.startswith("error: torch, transformers,") and bare.stderr.count("\n") == 1
    assert "make install" in bare.stderr


def test_no_program_bears_the_name_of_another_module() -> None:
    """``python runners/x.py`` puts runners/ on the path: a file named like a dependency would hide it."""
    names = {path.stem for path in (HERE / "runners").glob("*.py")} - {"__init__"}
    taken = set(sys.stdlib_module_names) | set(packages_distributions()) | {"ray", "vllm", "docker", "wandb"}
    assert "json" in taken and "torch" in taken
    assert names & taken == set()
