"""Wrong inputs of every program: one line that says what is wrong, exit status not 0, and nothing left behind.

``wrong_inputs.txt`` lists them. Most run in processes forked from one that has imported torch; what needs a fresh
process, or a harsh machine, runs as a person would start it.
"""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import wrong_world

from runners.cli import COMMANDS

pytestmark = pytest.mark.runs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Wrong(NamedTuple):
    """A line of the list: `NAME=VALUE … PROGRAM ARGUMENT … => what must be said`. {w} is the folder of the files."""

    line: str
    says: str

    def case(self, w: Path) -> dict[str, Any]:
        """What the driver reads. PLUGIN=NAME installs a package."""
        words = shlex.split(self.line.replace("{w}", str(w)))
        env = dict(words.pop(0).split("=", 1) for word in list(words) if re.match(r"[A-Z_0-9]+=", word))
        path = [str(w / "plugins" / env.pop("PLUGIN"))] if "PLUGIN" in env else []
        return {"argv": words, "path": path, "env": env | {"PYTHONPATH": os.pathsep.join([*path, str(ROOT)])}}


def listed(*sections: str) -> list[Wrong]:
    """The wrong inputs under these headings, or all of them."""
    text = (HERE / "wrong_inputs.txt").read_text("utf-8")
    parts = dict(part.split("\n", 1) for part in text.split("\n# ")[2:])
    assert set(sections) <= set(parts), "a heading"
    lines = "\n".join(parts[name] for name in sections or parts).splitlines()
    return [Wrong(*line.split(" => ")) for line in lines if line]


def complaint(ended: dict[str, Any], says: str, w: Path) -> str:
    """What is wrong with how a program ended; nothing where it ended as it should."""
    err = ended["err"]
    if ended["status"] in (0, "no end"):
        return f"exit status {ended['status']}"
    if "Traceback" in err + ended["out"] or not re.fullmatch(r"error: [^\n]+\n", err):
        return f"not one line: {err}"
    if says.replace("{w}", str(w)) not in err:
        return f"it does not say {says!r}: {err}"
    left = [path for path in ended["left"] if not path.endswith(".lock")]  # of the cache, empty and reused
    return f"it left {left} and {ended['children']} processes" if left or ended["children"] else ""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    w = tmp_path_factory.mktemp("world")
    wrong_world.build(w, w / "cache")
    return w


def surroundings(w: Path, **more: str) -> dict[str, str]:
    (w / "tmp").mkdir(exist_ok=True)
    places = {"TURNWISE_CACHE": str(w / "cache"), "HOME": str(w / "home"), "TMPDIR": str(w / "tmp")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWISE_", "XDG_"))}
    return {**kept, **places, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **more}


def driven(w: Path, cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(HERE / "wrong_driver.py"), str(w)], input=json.dumps(cases), text=True,
        stdout=subprocess.PIPE, cwd=w / "here", env=surroundings(w), timeout=1500, check=True,
    )  # fmt: skip
    return map(json.loads, done.stdout.splitlines())


def test_the_list_is_long_and_names_every_program() -> None:
    lines = [wrong.line for wrong in listed()]
    assert len(set(lines)) == len(lines) >= 400 and all(wrong.says for wrong in listed())
    assert {next(word for word in line.split() if "=" not in word) for line in lines} >= set(COMMANDS)


LOADING = ("run folders", "models", "packages of others", "endpoints", "credit")
"""Sections most of whose inputs are found out when torch has something to do."""


@pytest.mark.parametrize("loading", [False, True])
def test_every_wrong_input_is_one_line(loading: bool, world: Path) -> None:
    heavy = set(listed(*LOADING))
    wrongs = [wrong for wrong in listed() if (wrong in heavy) == loading]
    ends = driven(world, [wrong.case(world) for wrong in wrongs])
    complaints = {
        w.line: why for w, ended in zip(wrongs, ends, strict=True) if (why := complaint(ended, w.says, world))
    }
    assert not complaints, "\n".join(f"{line}\n    {why}" for line, why in complaints.items())


CONTROLS = {
    "list => Environments": "exit status 0",
    "train --env wikki => did you mean puzzle": "it does not say",
    "RAISES=1 list => x": "not one line",
    "LEAVES=1 list => x": "it left",
    "FORKS=1 list => x": "1 processes",
}


def test_a_right_input_a_traceback_and_what_is_left_are_seen(world: Path) -> None:
    """What the environment variables name is done by a package that `list` imports."""
    plugin = world / "plugins" / "control"
    source = """
import os, subprocess, sys
if "RAISES" in os.environ: os.write(2, b"Traceback\\n")
if "LEAVES" in os.environ: open("left", "w").close()
if "FORKS" in os.environ: subprocess.Popen(["sleep", "30"], stdout=-3, stderr=-3)
if {"RAISES", "LEAVES", "FORKS"} & set(os.environ):
    os.write(2, b"error: x\\n")
    os._exit(2)
"""
    wrong_world.plugin(plugin, "control", source)
    wrongs = [Wrong(*line.split(" => ")) for line in CONTROLS]
    cases = [wrong.case(world) for wrong in wrongs]
    for case in cases:
        case["path"] = [str(plugin)]
    ends = driven(world, cases)
    for wrong, ended, expected in zip(wrongs, ends, CONTROLS.values(), strict=True):
        assert expected in complaint(ended, wrong.says, world), (wrong, ended)


# -- harsh machines, as processes of their own -----------------------------------------------------------------------

TURNWISE = [sys.executable, "-c", "from runners.cli import main; main()"]


class Harsh(NamedTuple):
    """A command of a shell, in which $T is the program, and how it ends."""

    command: str
    status: int
    says: str = ""
    """What the one line on standard error says; "" where there is none."""
    env: dict[str, str] = {}  # noqa: RUF012 (nobody changes it)


ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
SMALL = "--config $W/files/small.yaml"
EVALUATE = "$T evaluate --model $W/models/good --env identity --tasks 4 --react.max-tokens 256"
HARSH = {
    "output that nobody reads": Harsh("$T list | true; exit ${PIPESTATUS[0]}", 141),  # as where SIGPIPE ends it
    "closed output": Harsh("$T list >&-", 2, "the standard output is closed: redirect it"),
    "closed errors": Harsh("$T train --env wikki 2>&-", 2),
    "a full output": Harsh("$T list > /dev/full", 2, "No space left on device"),
    "a full output of figures": Harsh("$T view $W/runs/good --out /dev/full", 2, "cannot write /dev/full"),
    "an output in ASCII": Harsh("$T list", 0, env=ASCII),
    "figures in ASCII": Harsh(f"{EVALUATE} --out figures.json", 0, env=ASCII),
    "an error in ASCII": Harsh("$T train --env wikki", 2, "did you mean wiki", env=ASCII),
    "no home": Harsh(
        "$T doctor --json", int(not os.access("/", os.W_OK)), env={"HOME": "/nonexistent", "TURNWISE_CACHE": ""}
    ),
    "no home to cache in": Harsh(
        f"$T train {SMALL} --pretrain.steps 63", 2, "set TURNWISE_CACHE",
        env={"HOME": "/proc/none", "TURNWISE_CACHE": ""},
    ),
    "a cache that cannot be written": Harsh(
        f"$T train {SMALL} --pretrain.steps 64", 2, "set TURNWISE_CACHE",
        env={"XDG_CACHE_HOME": "/proc/none", "TURNWISE_CACHE": ""},
    ),
    "little memory": Harsh(f"ulimit -v 1500000; {EVALUATE} --slots 20000", 2, "memory"),
    "a file of metrics that may not grow": Harsh(f"ulimit -f 40; $T train {SMALL} --out run", 2, "File too large"),
    "a run folder that goes away": Harsh(
        "(until [ -e run/metrics.jsonl ]; do sleep 0.02; done; until rm -rf run 2> /dev/null; do :; done) & "
        f"$T train {SMALL} --out run", 2,
        "cannot write",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARSH)
def test_a_harsh_machine_is_one_line(name: str, world: Path, tmp_path: Path) -> None:
    harsh = HARSH[name]
    env = surroundings(world, **harsh.env) | {"W": str(world), "T": shlex.join(TURNWISE)}
    env = {key: value for key, value in env.items() if value or key != "TURNWISE_CACHE"}
    command = harsh.command.replace("$T", shlex.join(TURNWISE))
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == harsh.status, (done.returncode, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    if harsh.says:
        assert re.fullmatch(r"error: [^\n]+\n", done.stderr) and harsh.says in done.stderr, done.stderr
    else:
        assert done.stderr == ""


def test_the_small_memory_is_what_ends_it(world: Path, tmp_path: Path) -> None:
    """The same command with all of the memory goes well."""
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    env = surroundings(world) | {"W": str(world)}
    command = EVALUATE.replace("$T", shlex.join(TURNWISE))
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
