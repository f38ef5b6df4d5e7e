"""evaluate.py as a person calls it, with agents that go by scores, on a run with a critic, and without."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_cases import training

from agent_envs.code.config import CodeConfig
from agent_envs.core import Task
from agents.rollout.settings import ReActSettings
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from runners import evaluate
from runners.command_line.errors import UserError
from runners.command_line.parse import parse
from runners.evaluation import thought_kinds as kinds
from runners.inference import evaluate_settings as asking

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]
FLAGS = ("--env", "identity", "--react.max-action-tokens", "16", "--react.max-tokens", "256", "--envs.processes", "1")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    place = tmp_path_factory.mktemp("runs") / "critic"
    with training(place, "--updates", "1", "--eval-every", "0", "--test-tasks", "0") as run:
        run.run()
    return place


@pytest.fixture
def measured(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    def call(*argv: str, model: Path = run_folder) -> dict[str, Any]:
        out = tmp_path / "found.json"
        flags = [*FLAGS, "--model", str(model), "--tasks", "6", "--out", str(out), *argv]
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *flags])
        evaluate.main()
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return call


def test_a_run_is_measured_with_its_own_settings_unless_told(run_folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run_folder, tmp_path / "other")
    text = (other / "config.yaml").read_text("utf-8")
    for old, new in (("  length: 3\n", "  length: 2\n"), ("\ntemperature: 1.0\n", "\ntemperature: 0.5\n")):
        assert old in text
        text = text.replace(old, new)
    assert "  max_action_tokens: 16\n" in text
    (other / "config.yaml").write_text(text, "utf-8")

    def settings(*argv: str) -> tuple[str, int, int]:
        asked, parts = parse(asking.Evaluate, asking.parts_of, argv, about="")
        (env,) = asking.envs_of(asked, asking.run_of(asked))
        return env, parts[env].length if env == "identity" else 0, parts["react"].max_action_tokens

    def temperature(*argv: str) -> float:
        asked, _ = parse(asking.Evaluate, asking.parts_of, argv, about="")
        return asking.sampling_of(asked, asking.run_of(asked)).temperature

    assert temperature("--model", str(other)) == 0.5
    assert temperature("--model", str(other), "--temperature", "0.7") == 0.7
    assert temperature() == 1.0
    assert "\ntop_p: 1.0\n" in text
    (other / "config.yaml").write_text(text.replace("\ntop_p: 1.0\n", "\ntop_p: 0.9\n"), "utf-8")
    asked, _ = parse(asking.Evaluate, asking.parts_of, ["--model", str(other), "--temperature", "0.7"], about="")
    sampling = asking.sampling_of(asked, asking.run_of(asked))
    assert (sampling.temperature, sampling.top_p) == (0.7, 0.9), "it changes nothing else"

    assert settings("--model", str(other)) == ("identity", 2, 16)
    assert settings("--model", str(other), "--identity.length", "4") == ("identity", 4, 16)
    assert settings("--env", "identity") == ("identity", 3, ReActSettings().max_action_tokens)
    assert settings("--env", "corridor", "--model", str(other)) == ("corridor", 0, ReActSettings().max_action_tokens)
    assert settings()[0] == "wiki"


def test_a_run_is_measured_in_the_type_it_was_trained_in(
    measured: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    place = tmp_path / "half"
    with training(place, "--updates", "1", "--eval-every", "0", "--test-tasks", "0", "--dtype", "bfloat16") as run:
        run.run()
    found = measured(model=place)
    assert found["settings"]["evaluate"]["dtype"] == "bfloat16" and found["settings"]["evaluate"]["top_p"] == 1.0
    with pytest.raises(UserError, match="was trained in bfloat16: leave --dtype float32 out"):
        measured("--dtype", "float32", model=place)


def test_a_run_cannot_take_the_walls_away(monkeypatch: pytest.MonkeyPatch) -> None:
    run, envs = SimpleNamespace(folder="strange"), {"code": CodeConfig(sandbox="unsafe-process")}
    monkeypatch.setattr(sys, "argv", ["evaluate", "--model", "strange"])
    with pytest.raises(UserError, match=r"would run without walls\. If .*, say --code\.sandbox unsafe-process"):
        asking.check_walls(run, envs)  # type: ignore[arg-type]
    asking.check_walls(run, {"code": CodeConfig()})  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["evaluate", "--model", "strange", "--code.sandbox", "unsafe-process"])
    asking.check_walls(run, envs)  # type: ignore[arg-type]


def test_no_file_of_another_name_is_overwritten(measured: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"name a file that ends in \.json"):
        measured("--agent", "best-of-n", "--out", str(tmp_path / "best.csv"))
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UserError, match=r"would overwrite .*README\.md: name another file"):
        measured("--agent", "best-of-n", "--out", str(tmp_path / "README.json"))
    assert (tmp_path / "README.md").read_text() == "mine" and not (tmp_path / "README.json").exists()


def test_best_of_n(measured: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(
        *("--agent", "best-of-n", "--best-of-n.n", "2", "4", "--validation.tasks", "6"),
        *("--scorer", "random", "value", "value+logprob", "end_value", "majority", "oracle"),
    )
    rows = {(row["scorer"], row["budget"]): row for row in found["rows"]}
    assert len(rows) == 13 and rows["none", 1]["agent"] == "react"
    assert rows["oracle", 4]["success"]["mean"] >= max(r["success"]["mean"] for r in found["rows"])
    assert rows["value", 4]["tokens"] == rows["random", 4]["tokens"], "the same episodes"
    assert rows["value", 4]["value_tokens"] == 2 * rows["value", 2]["value_tokens"] > 0
    assert rows["random", 2]["value_tokens"] == 0 and set(rows["value", 2]["over"]) == {"random"}
    assert found["weights"]["value+logprob"] > 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md", ".csv", ".png"}
    assert "value+logprob: weight of the log-probability" in capsys.readouterr().out


def test_search(measured: Callable[..., dict[str, Any]]) -> None:
    found = measured("--agent", "tot", "--scorer", "value", "oracle", "--sweep.branch", "2", "3", "--tot.beam", "1")
    rows = {(row["scorer"], row["budget"]): row for row in found["rows"]}
    assert len(rows) == 5 and rows["value", 3]["value_tokens"] > 0 == rows["oracle", 3]["value_tokens"]
    assert rows["oracle", 3]["tokens"]["mean"] > rows["none", 1]["tokens"]["mean"]
    again = measured("--agent", "tot", "--scorer", "value", "--tot.branch", "3", "--tot.beam", "1")
    assert again["rows"][1]["tokens"] == rows["value", 3]["tokens"], "the same search is the same result"


def test_early_stop(measured: Callable[..., dict[str, Any]]) -> None:
    found = measured(
        *("--agent", "early-stop", "--samples", "2", "--scorer", "value", "oracle"),
        *("--validation.tasks", "12", "--early-stop.max-loss", "0"),
    )
    value, oracle = found["early_stop"]
    assert (value["scorer"], oracle["scorer"]) == ("value", "oracle")
    for stop in (value, oracle):
        assert 0 <= stop["figures"]["failing_saved"]["mean"] <= 1 and stop["rule"] in ("level", "turn")
        assert stop["stopped"]["tokens"] <= found["rows"][0]["tokens"]["mean"]


def test_calibration_is_part_of_the_report(measured: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = measured("--samples", "3", "--react.oracle")
    figures = found["calibration"]["figures"]
    assert {"auc", "auc_middle_gain", "brier_predictor", "auc_solvable", "auc_oracle"} <= set(figures)
    assert found["calibration"]["counts"]["states"] > 5 and {"base", "trained", "gain"} <= set(found)
    assert (tmp_path / "found-calibration.png").exists()
    assert "auc_solvable" not in measured("--samples", "3")["calibration"]["figures"]


def test_who_has_no_critic_is_told_so(
    measured: Callable[..., dict[str, Any]], run_folder: Path, tmp_path: Path
) -> None:
    base = Path(json.loads((run_folder / "base.json").read_text())["source"])
    for argv, told in (
        (("--agent", "best-of-n", "--scorer", "value"), "the scorer value needs a critic, and this model has none"),
        (("--agent", "tot", "--scorer", "value"), "the scorer value needs a critic"),
    ):
        with pytest.raises(UserError, match=told) as error:
            measured(*argv, model=base)
        assert "\n" not in str(error.value)
    assert measured("--agent", "best-of-n", "--scorer", "logprob", model=base)["rows"]
    with training(tmp_path / "zero", "--updates", "1", "--test-tasks", "0", "--selfac.terminal-target", "zero") as run:
        run.run()
    with pytest.raises(UserError, match="needs a critic whose last value learned the outcome"):
        measured("--agent", "best-of-n", "--scorer", "end_value", model=tmp_path / "zero")
    with pytest.raises(UserError, match="--slots 4 must hold the 8 actions"):
        measured("--agent", "tot", "--scorer", "random", "--slots", "4", model=base)
    with pytest.raises(UserError, match="--split must be test"):
        measured("--agent", "early-stop", "--scorer", "value", "--split", "valid", "--validation.tasks", "4")


def test_kinds_of_thoughts_by_hand() -> None:
    def episode(task: str, *turns: tuple[str, float], won: bool) -> Episode:
        found = Episode(Job(Task(task, "test", "")), Node(Kind.STATE, (1,)))
        for i, (text, reward) in enumerate(turns):
            last = i == len(turns) - 1
            action = Node(Kind.ACTION, (2,), reward=reward)
            state = Node(Kind.STATE, (), terminated=last, success=won if last else None)
            found.end.add(action).add(state)
            found.turns.append((action, state))
            found.texts.append((text, ""))
        return found

    played = [
        episode("a", ("guess", 0.0), ("mend", 0.0), ("so", 1.0), won=True),
        episode("b", ("guess", 0.0), ("guess", 0.0), won=False),
    ]
    values = [(0.5, 0.2, 0.8, 9.0), (0.5, 0.4, 9.0)]
    told = kinds.by_kind(played, values, lambda text: None if text == "so" else text)
    assert {name: row["turns"] for name, row in told.items()} == {"guess": 3, "mend": 1, "other": 1}
    assert told["guess"]["share"].mean == pytest.approx(0.6)
    assert told["guess"]["change"].mean == pytest.approx((-0.3 - 0.1 - 0.4) / 3)
    assert told["mend"]["change"].mean == pytest.approx(0.6) and told["other"]["change"].mean == pytest.approx(0.2)
    assert [told[k]["success"].mean for k in ("guess", "mend", "other")] == [0.5, 1.0, 1.0]
    assert kinds.by_kind(played, None, str)["guess"]["change"] is None and kinds.by_kind([], None, str) == {}
