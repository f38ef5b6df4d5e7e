"""The command `turnwise`: its words, what it imports before it answers, and the two reports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agent_envs import registry
from runners import cli, doctor, list_parts
from runners.command_line import deferred

pytestmark = pytest.mark.runs

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = (
    "train",
    "evaluate",
    "bench",
    "compare",
    "credit",
    "view",
    "export",
    "play",
    "serve-mcp",
    "serve-openenv",
    "pretrain",
    "new-env",
    "list",
    "doctor",
)
HEAVY = ("torch", "transformers", "peft", "matplotlib", "tantivy")


def turnwise(*argv: str, code: str = "import sys; from runners.cli import main; main()") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "HOME": "/nonexistent"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


TOO_FEW = ("train", "--env", "identity", "--algo", "grpo", "--episodes", "12")
"""Sizes that do not fit each other."""
IMPORTED = """
import atexit, sys
def told():
    inside = ("torch._C", "transformers.utils", "peft.peft_model", "matplotlib.figure", "tantivy.tantivy")
    print("LOADED", *(name for name in inside if name in sys.modules))
atexit.register(told)
from runners.cli import main
main()
"""


ANSWERED = [
    *((name,) for name in COMMANDS),
    ("evaluate", "--endpoint", "http://127.0.0.1:9/v1"),
    ("doctor", "--model", "any"),
]
"""Every command, and the words that choose other settings of one."""


@pytest.mark.parametrize(
    "argv", [("--help",), ("trian",), ("list",), TOO_FEW, *((*words, "--typo") for words in ANSWERED)]
)
def test_nothing_heavy_is_loaded_to_answer(argv: tuple[str, ...]) -> None:
    assert turnwise(*argv, code=IMPORTED)[1].splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("words", ANSWERED)
def test_every_command_has_its_help_and_nothing_heavy_is_loaded_for_it(words: tuple[str, ...]) -> None:
    status, out, err = turnwise(*words, "--help", code=IMPORTED)
    *lines, loaded = out.splitlines()
    assert status == 0 and loaded == "LOADED" and lines[0].startswith(f"usage: turnwise {words[0]} "), (out, err)
    assert len(lines) <= 120 and max(map(len, lines)) <= 80


def test_that_is_really_seen() -> None:
    code = IMPORTED.replace("from runners.cli", "import torch\nfrom runners.cli")
    assert turnwise("--help", code=code)[1].splitlines()[-1] == "LOADED torch._C"


def test_the_help_names_every_command() -> None:
    status, out, err = turnwise("--help")
    assert status == 0 and not err and tuple(cli.COMMANDS) == COMMANDS
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("trian",), "unknown command 'trian': did you mean train?"),
        (("zzz",), "unknown command 'zzz': turnwise --help lists the commands"),
        (("train", "--epizodes", "3"), "unknown flag --epizodes: did you mean --episodes"),
        (("train", "--env", "wikki"), "unknown environment 'wikki'; there are "),
        (("view", "--run", "x"), "one path is expected"),
    ],
)
def test_a_mistake_is_one_line(argv: tuple[str, ...], says: str) -> None:
    status, _, err = turnwise(*argv)
    assert status == 2 and err.count("\n") == 1 and err.startswith("error: ") and says in err, err


def test_a_command_is_the_program_of_that_name() -> None:
    direct = subprocess.run(
        [sys.executable, str(ROOT / "runners" / "train.py"), "--help"], cwd=ROOT, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80"}, timeout=120,
    ).stdout  # fmt: skip
    assert turnwise("train", "--help")[1].replace("turnwise train", "train.py") == direct


def test_every_listed_part_has_a_line_and_a_broken_one_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(registry.ENVS, "broken", "agent_envs.there_is_no_such_module:Env")
    monkeypatch.setattr(sys, "argv", ["turnwise list", "--json"])
    list_parts.main()
    listed = json.loads(capsys.readouterr().out)
    parts = {part["name"]: part for parts in listed.values() for part in parts}
    assert {"wiki", "react", "tot", "selfac", "hf", "oracle"} <= parts.keys()
    assert "there_is_no_such_module" in parts.pop("broken")["error"]
    assert all(part["description"] and len(part["description"]) <= 120 and not part["error"] for part in parts.values())


def test_the_doctor_says_what_is_missing_and_how_to_add_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["turnwise doctor", "--json"])
    monkeypatch.setattr(doctor, "EXTRAS", {"docker": ("no_such_module_here", "the docker sandbox")})
    with pytest.raises(SystemExit) as stop:
        doctor.main()
    report = json.loads(capsys.readouterr().out)
    assert report["ready"] and stop.value.code == 0
    findings = {one["what"]: one for one in report["findings"]}
    assert findings["extra docker"]["fix"] == "pip install 'turnwise[docker]'"
    assert torch.__version__ in findings["torch"]["text"]


def test_a_deferred_library_is_the_library_once_it_is_used() -> None:
    code = (
        "import sys; from runners.command_line import deferred; deferred.install(); import torch; "
        "before = 'torch._C' in sys.modules; torch.zeros(1); print(before, 'torch._C' in sys.modules)"
    )
    assert turnwise(code=code)[1].split() == ["False", "True"]
    assert set(deferred.HEAVY) == set(HEAVY)
