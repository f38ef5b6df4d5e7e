"""Whole runs whose actions are calls of tools: training, evaluation, worker processes, forks, and what is refused."""

import json
import sys
from pathlib import Path

import pytest
from run_cases import training
from transformers import AutoTokenizer

from runners import evaluate
from runners.command_line.errors import UserError

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]
CALLS = ("--chat.tools", "on", "--updates", "2", "--react.max-action-tokens", "64", "--react.max-tokens", "1024")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    folder: Path = tmp_path_factory.mktemp("calls") / "run"
    with training(folder, *CALLS) as run:
        run.run()
    return folder


def episodes(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def test_the_tiny_model_learns_by_calls(run_folder: Path) -> None:
    base = json.loads((run_folder / "base.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(base["source"])
    turns = [turn for episode in episodes(run_folder) for turn in episode["turns"]]
    written = [tokenizer.decode(turn["tokens"]) for turn in turns]
    calls = [turn["action"] for turn, text in zip(turns, written, strict=True) if "<tool_call>" in text]
    assert len(calls) > len(turns) / 2
    carried = [text for text in calls if "<action>SAY(" in text]
    assert len(carried) > len(calls) / 2 and not any("<tool_call>" in text for text in carried)
    seen = tokenizer.decode(episodes(run_folder)[0]["prompt_tokens"])
    assert '"parameters"' in seen and "<action>" not in seen


def test_workers_play_the_same_calls(tmp_path: Path, run_folder: Path) -> None:
    with training(tmp_path / "run", *CALLS, "--workers", "1") as run:
        run.run()
    assert episodes(tmp_path / "run") == episodes(run_folder)


def test_forks_go_on_with_calls(tmp_path: Path) -> None:
    arpo = ("--algo", "arpo", "--arpo.group", "8", "--arpo.initial-rollouts", "3", "--arpo.lookahead", "3")
    with training(tmp_path / "arpo", *CALLS, *arpo, "--episodes", "16") as run:
        run.run()
    assert sum("forked_from" in episode for episode in episodes(tmp_path / "arpo"))


def test_what_a_run_learned_is_evaluated_by_calls(
    tmp_path: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "result.json"
    command = ["evaluate", "--model", str(run_folder), "--tasks", "8", "--samples", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    evaluate.main()
    assert json.loads(out.read_text())["settings"]["evaluate"]["env"] == "identity"


def test_what_has_no_tools_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the environment math has no actions that could be tools"):
        training(tmp_path / "math", "--env", "math", "--chat.tools", "on", text="updates: 1")
