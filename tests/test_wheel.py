"""The wheel in an environment of its own, outside the repository, alone and beside packages that add parts."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.runs
ROOT = Path(__file__).resolve().parent.parent
PARTS = (
    "agent_envs",
    "agents",
    "algorithms",
    "runners",
    "turnwise_verifiers.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
SMALL = ["--updates", "2", "--episodes", "16", "--minibatches", "2", "--test-tasks", "0", "--eval-every", "0"]
SMALL += ["--react.max-action-tokens", "16", "--react.max-tokens", "256", "--pretrain.demonstrations", "100"]
SMALL += ["--pretrain.steps", "20", "--pretrain.shape.width", "64", "--pretrain.shape.mlp", "128"]


def wheel(source: Path, place: Path) -> Path:
    """Builds ``source`` without a network; not in the repository, which stays as it is."""
    command = ["pip", "wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", str(place)]
    done = subprocess.run([sys.executable, "-m", *command, str(source)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("wheels")
    source = place / "turnwise"
    source.mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    for name in ("plugin", "outside", "taken"):
        shutil.copytree(ROOT / "tests" / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "build"))
    return {name: wheel(place / name, place / f"{name}-built") for name in ("turnwise", "plugin", "outside", "taken")}


def environment(place: Path, *wheels: Path) -> Path:
    """A virtual environment with these wheels; their dependencies are those of the environment that tests run in."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=120)
    python = place / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    # A folder named in a .pth file is searched, but its own .pth files (the editable install) do not act.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    done = subprocess.run([*command, "--ignore-installed", *map(str, wheels)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place


def turnwise(place: Path, cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    clean |= {"TURNWISE_CACHE": str(cwd / "cache"), "COLUMNS": "200"}
    command = [str(place / "bin" / "turnwise"), *argv]
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("alone") / "env", wheels["turnwise"])


@pytest.fixture(scope="module")
def beside(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("beside") / "env"
    return environment(place, wheels["turnwise"], wheels["plugin"], wheels["outside"])


def test_the_code_is_that_of_the_wheel(alone: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [alone / "bin" / "python", "-c", "import agents, runners; print(agents.__file__, runners.__file__)"],
        cwd=tmp_path, capture_output=True, text=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.stdout.count(str(alone)) == 2, done.stdout + done.stderr


def test_it_lists_reports_trains_and_shows(alone: Path, tmp_path: Path) -> None:
    listed = json.loads(turnwise(alone, tmp_path, "list", "--json").stdout)
    assert {name: bool(parts) for name, parts in listed.items()} == dict.fromkeys(
        ("environments", "agents", "algorithms", "engines", "judges", "workers"), True
    )
    assert all(not part["error"] and not part["origin"] for parts in listed.values() for part in parts)
    doctor = turnwise(alone, tmp_path, "doctor")
    assert doctor.returncode == 0 and "processor" in doctor.stdout and "sandbox" in doctor.stdout, doctor.stderr
    done = turnwise(alone, tmp_path, "train", "--env", "identity", "--out", "run", *SMALL)
    assert done.returncode == 0, done.stderr
    assert len([r for r in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() if '"update"' in r]) >= 2
    assert turnwise(alone, tmp_path, "view", "run").returncode == 0
    assert (tmp_path / "run" / "view.html").stat().st_size > 10_000


def test_parts_of_other_packages_work(beside: Path, tmp_path: Path) -> None:
    listed = json.loads(turnwise(beside, tmp_path, "list", "--json").stdout)
    outside = {part["name"]: part["origin"] for parts in listed.values() for part in parts if part["origin"]}
    theirs = "turnwise-outside"
    names = ("count_up", "recompute", "hinted", "short", "counting")
    assert outside == {**dict.fromkeys(names, theirs), "imitation": "turnwise-imitation"}
    argv = ["--env", "count_up", "--algo", "imitation", "--engine", "recompute", "--agent", "hinted", "--slots", "4"]
    own = ("--hinted.hint", "Count aloud.", "--workers", "counting:1")
    done = turnwise(beside, tmp_path, "train", *argv, *own, "--out", "run", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "recompute: no cache" in done.stdout and "portions played: " in done.stdout
    episode = json.loads((tmp_path / "run" / "episodes.jsonl").read_text().splitlines()[0])
    assert episode["system"].endswith("Count aloud."), episode["system"]
    judged = ("--env", "count_up", "--algo", "adca", "--judge.kind", "short", "--judge.max-reply-tokens", "3")
    done = turnwise(beside, tmp_path, "train", *judged, "--out", "judged", *SMALL)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "judged" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["judge_asked"] == 16 and row["judge_parsed"] == 1 for row in rows if row["kind"] == "update")
    again = turnwise(
        beside, tmp_path, "evaluate", "--env", "count_up", "--model", "run", "--tasks", "8", "--samples", "1"
    )
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            ("--env", "identity", "--algo", "arpo", "--episodes", "32"),
            "needs an engine that is capable of forks, and this one is not: recompute: no cache",
        ),
        (
            ("--env", "identity", "--agent", "tot"),
            "--agent tot needs an engine that is capable of forks, and this one is not",
        ),
        (("--env", "math"), "needs an engine that is capable of thought_cuts, and this one is not"),
    ],
)
def test_what_the_engine_cannot_do_is_one_line(beside: Path, tmp_path: Path, argv: tuple[str, ...], says: str) -> None:
    small = [*SMALL, "--pretrain.demonstrations", "20", "--pretrain.steps", "2"]
    done = turnwise(beside, tmp_path, "train", "--engine", "recompute", *small, *argv)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr[-2000:]


def test_a_name_that_is_taken_is_refused(wheels: dict[str, Path], tmp_path: Path) -> None:
    place = environment(tmp_path / "env", wheels["turnwise"], wheels["taken"])
    listed = json.loads(turnwise(place, tmp_path, "list", "--json").stdout)
    refused = {part["name"]: part["error"] for parts in listed.values() for part in parts if part["error"]}
    assert set(refused) == {"identity", "grpo", "hf", "react", "oracle", "process"}
    assert all("of the package turnwise-taken) has the name of a built-in" in error for error in refused.values())
    for argv in (("--env", "identity"), ("--env", "corridor", "--algo", "grpo"), ("--env", "corridor")):
        done = turnwise(place, tmp_path, "train", *argv)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "has the name of a built-in" in done.stderr and done.stderr.endswith(": rename it\n")
