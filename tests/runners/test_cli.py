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

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = ("train", "evaluate", "compare", "credit", "view", "play", "pretrain", "list", "doctor")
HEAVY = ("torch", "transformers", "peft", "matplotlib", "tantivy")


def turnwise(*argv: str, code: str = "import sys; from runners.cli import main; main()") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "HOME": "/nonexistent"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


IMPORTED = """
import atexit, sys
def told():
    inside = ("torch._C", "transformers.utils", "peft.peft_model", "matplotlib.figure")
    print("LOADED", *(name for name in inside if name in sys.modules))
atexit.register(told)
from runners.cli import main
main()
"""


@pytest.mark.parametrize(
    "argv", [("--help",), ("train", "--help"), ("train", "--typo"), ("list", "--help"), ("trian",)]
)
def test_nothing_heavy_is_loaded_to_answer(argv: tuple[str, ...]) -> None:
    assert turnwise(*argv, code=IMPORTED)[1].splitlines()[-1] == "LOADED"


def test_that_is_really_seen() -> None:
    code = IMPORTED.replace("from runners.cli", "import torch\nfrom runners.cli")
    assert turnwise("--help", code=code)[1].splitlines()[-1] == "LOADED torch._C"


def test_the_help_names_every_command_and_each_has_its_own() -> None:
    status, out, err = turnwise("--help")
    assert status == 0 and not err and tuple(cli.COMMANDS) == COMMANDS
    assert all(f"\n  {name} " in out for name in COMMANDS)
    for name in COMMANDS:
        status, out, err = turnwise(name, "--help")
        assert status == 0 and out.startswith(f"usage: turnwise {name} "), (name, out[:200], err)
        lines = out.splitlines()
        assert len(lines) <= 120 and max(map(len, lines)) <= 80, (name, len(lines))


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
