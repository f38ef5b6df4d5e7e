"""What a run leaves behind."""

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from agent_envs.core import Task
from agent_envs.isolation.faults import FaultKind, Stage
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Fault, Job
from runners.command_line.errors import UserError
from runners.run_folder.folder import LOCK, fresh_folder, hold
from runners.settings.train_settings import Train
from runners.training.advice import Advisor
from runners.training.closing import closing, draw_curve
from runners.training.columns import COLUMNS
from runners.training.credited import Credited
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

    def opened(folder: Path) -> bool:
        with fresh_folder(folder) as made:
            return made == folder and not [path for path in made.iterdir() if path.name != LOCK]

    assert opened(fresh)
    assert opened(fresh)  # empty is new enough
    with hold(fresh), pytest.raises(UserError, match="by another process"):
        hold(fresh)
    assert opened(fresh)  # and so is one that was only held
    (fresh / "x").touch()
    with pytest.raises(UserError, match="not empty"):
        opened(fresh)
    with pytest.raises(UserError, match="cannot write the folder"):
        opened(fresh / "x" / "run")
    assert (fresh / "x").exists()


def test_a_failed_start_leaves_no_folder(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    for folder, left in ((tmp_path / "a" / "b", [kept]), (kept, [kept])):
        with pytest.raises(KeyboardInterrupt), fresh_folder(folder):
            (folder / "checkpoints" / "new").mkdir(parents=True)
            (folder / "metrics.jsonl").touch()
            raise KeyboardInterrupt
        assert list(tmp_path.iterdir()) == left and not list(kept.iterdir())
    # What another process began there in the meantime stays.
    with pytest.raises(UserError, match="by another process"), fresh_folder(kept), hold(kept):
        hold(kept)
    with hold(kept) as _, pytest.raises(UserError, match="stopped"), fresh_folder(kept):
        raise UserError("stopped")
    assert [path.name for path in kept.iterdir()] == [LOCK]


def test_the_end_of_a_run_says_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"mean": 0.946, "low": 0.93, "high": 0.97}
    summary = {"start": {"sampled": {"mean": 0.5, "low": 0.4, "high": 0.6}}, "final": {"sampled": figures}}
    monkeypatch.setattr(sys, "argv", ["turnwise train", "--env", "wiki"])
    lines = list(closing(Train(), tmp_path, summary, tmp_path / "view.html"))
    assert lines[0] == "wiki, selfac: success on test tasks, sampled: 0.50 → 0.95 [0.93, 0.97]"
    assert f"next:    turnwise evaluate --model {tmp_path}    " in "\n".join(lines)
    monkeypatch.setattr(sys, "argv", ["runners/train.py"])
    monkeypatch.setattr(sys, "executable", "/there/bin/python")
    lines = list(closing(Train(), tmp_path, {"start": {}, "final": {}}, tmp_path / "view.html"))
    assert "not measured" in lines[0] and "there/bin/python runners/evaluate.py --model" in "\n".join(lines)


HEALTHY = {"turns": 3.0, "invalid": 0.2, "success": 0.5, "reward_std": 0.5, "grad_norm": 1.0, "seconds_env": 0.0}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"invalid": 1.0, "success": 0.0, "reward_std": 0.0}, "every action was invalid"),
        ({"success": 0.0, "reward_std": 0.0}, "all had the same reward"),
        ({"grad_norm": 0.0}, "the adapter never moved"),
        ({"left_out_steps": 4.0}, "further than --max-kl and was taken back"),
        ({"left_out_steps": 3.0}, None),
        ({}, None),
        ({"success": 0.0}, None),
    ],
)
def test_a_run_in_which_nothing_can_be_learned_says_so(row: dict[str, float], says: str | None) -> None:
    out = io.StringIO()
    advisor = Advisor(Train(), Console(file=out, width=500))
    stuck, well = {**HEALTHY, "seconds_rollout": 1.0, **row}, {**HEALTHY, "seconds_rollout": 1.0}
    for each in (stuck, well, stuck, well):
        advisor.look_at(each)
    assert out.getvalue() == "", "two in a row are needed"
    for _ in range(4):
        advisor.look_at(stuck)
    assert out.getvalue().count("taught nothing") == (says is not None), "once, and only where it is true"
    assert says is None or says in out.getvalue()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"success": 0.4, "truncated": 0.6, "explained_variance": 0.1}, 1),
        ({"success": 0.4, "truncated": 0.5, "explained_variance": 0.1}, 0),
        ({"success": 1.0, "truncated": 0.0, "explained_variance": 0.1}, 0),
        ({"success": 0.4, "truncated": 0.6}, 0),
    ],
    ids=["all cut", "one failed", "none cut", "no critic"],
)
def test_episodes_that_never_fail_are_pointed_out(row: dict[str, float], said: int) -> None:
    out = io.StringIO()
    advisor = Advisor(Train(), Console(file=out, width=500))
    for each in (row, row, {**row, "success": 0.0}, row, row):
        advisor.look_at({**HEALTHY, "seconds_rollout": 1.0, **each})
    assert "no episode failed" not in out.getvalue(), "three in a row are needed"
    for _ in range(4):
        advisor.look_at({**HEALTHY, "seconds_rollout": 1.0, **row})
    assert out.getvalue().count("no episode failed") == said


STEADY, LOST, WRONG = (0.6, 0.02), (0.3, 0.02), (0.6, 0.7)
"""(success, share of invalid actions) of an update."""


@pytest.mark.parametrize(
    ("then", "says"),
    [
        ([LOST] * 3, "success fell from 0.60 to 0.40"),
        ([WRONG] * 3, "invalid actions rose from 2% to 47%, success is 0.60"),
        ([LOST, STEADY, STEADY], None),
        ([(0.5, 0.3), (0.45, 0.3), (0.5, 0.3)], None),
        ([(0.9, 0.0)] * 4, None),
    ],
    ids=["success", "invalid actions", "single updates", "a little worse", "better"],
)
def test_a_run_that_breaks_down_says_so_once(then: list[tuple[float, float]], says: str | None) -> None:
    out = io.StringIO()
    advisor = Advisor(Train(), Console(file=out, width=500))
    for success, invalid in [STEADY] * 4 + then * 2:
        advisor.look_at({**HEALTHY, "seconds_rollout": 1.0, "success": success, "invalid": invalid})
    assert out.getvalue().count("the run broke down") == (says is not None)
    assert says is None or says in out.getvalue()


def test_a_run_that_never_was_good_has_not_broken_down() -> None:
    out = io.StringIO()
    advisor = Advisor(Train(), Console(file=out, width=500))
    for success, invalid in [(0.1, 0.9)] * 5 + [(0.0, 0.95)] * 5:
        advisor.look_at({**HEALTHY, "seconds_rollout": 1.0, "success": success, "invalid": invalid})
    assert "broke down" not in out.getvalue()


@pytest.mark.parametrize(
    ("gpu", "engine", "rollout", "said"),
    [(True, "hf", 5.0, True), (False, "hf", 5.0, False), (True, "vllm", 5.0, False), (True, "hf", 3.0, False)],
)
def test_slow_sampling_on_a_gpu_is_said_once(gpu: bool, engine: str, rollout: float, said: bool) -> None:
    out = io.StringIO()
    advisor = Advisor(Train(engine=engine), Console(file=out, width=500), gpu=gpu)
    times = {"seconds_rollout": rollout, "seconds_env": 1.0, "seconds_forward": 0.5, "seconds_update": 0.5}
    for _ in range(2):
        advisor.look_at({**HEALTHY, **times})
    assert out.getvalue().count("--engine vllm") == said


@pytest.mark.parametrize(
    ("waited", "rollout", "learned", "said"),
    [(0.6, 1.0, 0.2, 1), (0.4, 1.0, 0.2, 0), (0.6, 1.0, 1.5, 0), (0.9, 1.0, 1.5, 1)],
    ids=["most of it", "less than half", "of little", "of much"],
)
def test_waiting_for_environments_is_said_where_it_costs(
    waited: float, rollout: float, learned: float, said: int
) -> None:
    out = io.StringIO()
    advisor = Advisor(Train(), Console(file=out, width=500))
    for _ in range(2):
        advisor.look_at({**HEALTHY, "seconds_env": waited, "seconds_rollout": rollout, "seconds_update": learned})
    assert out.getvalue().count("waits for environments") == said
