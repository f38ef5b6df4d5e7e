"""What a run leaves behind."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from agent_envs.core import Task
from agent_envs.isolation.faults import FaultKind, Stage
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Fault, Job
from runners.command_line.errors import UserError
from runners.run_folder.folder import hold, open_run_folder
from runners.training.columns import COLUMNS
from runners.training.curve import draw_curve
from runners.training.learner import Credited
from runners.training.report import Report, versions

NAN = float("nan")
ROW = {"success": 0.5, "entropy": 1.25, "explained_variance": NAN, "seconds": 3.0, "own_number": 7.0}
TASK = Task("t-1", "train", "问题", language="zh", level=2, data=("secret answer",))
CHECK = {"mean": 0.5, "low": 0.25, "high": 0.75}


def episode() -> Episode:
    root = Node(Kind.STATE, (1, 2))
    action = root.add(Node(Kind.ACTION, (3, 4), logp=(-0.1234567, -1.0), entropy=(0.5, 0.25), reward=1.0, version=6))
    end = action.add(Node(Kind.STATE, (), terminated=True, success=True))
    return Episode(Job(TASK, 3), root, [(action, end)], [("SAY(红)", "")], ("sys", "问题"), metrics={"right": 1.0})


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in file.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    screen = io.StringIO()
    with Report(tmp_path, 2, Console(file=screen, width=80)) as report:
        report.evaluation(0, "test", "sampled", CHECK, 1.5)
        for step in (1, 2):
            credited = {("t-1", 3, 0): Credited((0.25, 0.5), (0.75,))} if step == 1 else {}
            fault = Fault(Job(TASK, 4, attempt=2), FaultKind.HUNG, Stage.STEP, "no answer in 30 s")
            report.outcomes(step, [episode(), fault], credited)
            report.update(step, ROW)
        report.evaluation(2, "test", "sampled", {**CHECK, "mean": 0.7}, 9.0)
    (tmp_path / "screen").write_text(screen.getvalue())
    return tmp_path


def test_every_number_of_an_update_is_kept(folder: Path) -> None:
    first, second, third, fourth = lines(folder / "metrics.jsonl")
    assert first == {"kind": "evaluation", "update": 0, "split": "test", "mode": "sampled", **CHECK, "seconds": 1.5}
    assert second == {"kind": "update", "update": 1, **ROW, "explained_variance": None}
    assert (third["update"], fourth["kind"], fourth["mean"]) == (2, "evaluation", 0.7)
    assert any((folder / "tensorboard").iterdir())


def test_an_episode_is_its_tokens_and_holds_no_answer(folder: Path) -> None:
    kept = lines(folder / "episodes.jsonl")
    assert [e["update"] for e in kept] == [1, 1, 2, 2]
    assert kept[0]["task"] == "t-1" and kept[0]["prompt_tokens"] == [1, 2] and kept[0]["success"] is True
    (turn,) = kept[0]["turns"]  # type: ignore[misc]
    assert turn["tokens"] == [3, 4] and turn["logp"] == [-0.123457, -1.0] and turn["version"] == 6
    assert turn["action"] == "SAY(红)" and "SAY(红)" in (folder / "episodes.jsonl").read_text("utf-8")
    assert (turn["value"], turn["advantage"], kept[0]["end_value"]) == (0.25, 0.75, 0.5)
    (uncredited,) = kept[2]["turns"]  # type: ignore[misc]
    assert (uncredited["value"], uncredited["advantage"], kept[2]["end_value"]) == (None, None, None)
    assert kept[1] == {
        "update": 1, "task": "t-1", "sample": 4, "attempt": 2,
        "fault": {"kind": "hung", "stage": "step", "message": "no answer in 30 s"},
    }  # fmt: skip
    assert "secret" not in (folder / "episodes.jsonl").read_text("utf-8")


def test_without_a_terminal_every_update_is_one_line(folder: Path) -> None:
    said = (folder / "screen").read_text().splitlines()
    assert len(said) == 4
    assert said[1].startswith("update 1: success 0.500") and "entropy (nats) 1.250" in said[1]
    assert "0.700 [0.250, 0.750] at 9 s" in said[3]


def test_on_a_terminal_there_is_a_table(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=160, force_terminal=True)
    with Report(tmp_path, 2, console) as report:
        report.update(1, ROW)
        console.print(report._view())
    said = screen.getvalue()
    assert all(label in said for columns in COLUMNS.values() for _, label, _ in columns)
    assert "0.500" in said and "nan" not in said


def test_the_curve_is_drawn(folder: Path) -> None:
    assert draw_curve(folder, "a title").read_bytes().startswith(b"\x89PNG")


def test_versions_name_what_decides_a_run() -> None:
    found = versions()
    assert {"python", "torch", "transformers", "peft"} <= set(found)
    assert found["torch"][0].isdigit()


def test_a_run_folder_is_new(tmp_path: Path) -> None:
    fresh = tmp_path / "a" / "b"
    assert open_run_folder(fresh) == fresh and list(fresh.iterdir()) == []
    assert open_run_folder(fresh) == fresh  # empty is new enough
    with hold(fresh), pytest.raises(UserError, match="by another process"):
        hold(fresh)
    assert open_run_folder(fresh) == fresh  # and so is one that was only held
    (fresh / "x").touch()
    with pytest.raises(UserError, match="not empty"):
        open_run_folder(fresh)
    with pytest.raises(UserError, match="cannot write the run folder"):
        open_run_folder(fresh / "x" / "run")
