"""Models in `turnwise bench`: the same weights give the same digest, others another; served ones are kept."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from bench_cases import Command, command, small_suite
from judge_server import Server, judge_server
from run_cases import training
from safetensors.torch import load_file, save_file
from served_cases import KEY, say

from runners.command_line.errors import UserError

SHORT = ("--envs.processes", "1", "--react.max-tokens", "256", "--react.max-action-tokens", "16")
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    with training(folder) as run:
        run.run()
    return folder


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return command(tmp_path, monkeypatch, small_suite())


@pytest.mark.runs
def test_a_run_is_the_same_twice_whatever_is_played_at_once(
    bench: Command, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = bench("--model", str(trained))
    said = capsys.readouterr().out
    assert "| small-1 | small | " in said and "was trained with other settings of identity: length" in said
    assert bench("--model", str(trained), "--slots", "2")["digest"] == first["digest"]
    moved = shutil.copytree(trained, trained.parent / "moved")
    assert bench("--model", str(moved))["digest"] == first["digest"], "it depends on no path"
    assert bench("--model", str(trained), "--react.max-tokens", "128")["digest"] != first["digest"]
    assert first["figures"]["costs"]["tokens"] > 0 and first["reproducible"]["agent"]["kind"] == "model"


@pytest.mark.runs
def test_other_weights_are_another_row(bench: Command, trained: Path, tmp_path: Path) -> None:
    source = json.loads((trained / "base.json").read_text())["source"]
    model = shutil.copytree(source, tmp_path / "model")
    first = bench("--model", str(model), *SHORT)
    assert first["reproducible"]["agent"]["weights"] == json.loads((trained / "base.json").read_text())["fingerprint"]
    assert bench("--model", str(trained), *SHORT)["digest"] != first["digest"], "the run's adapter"
    weights = load_file(model / WEIGHTS)
    name = next(name for name in weights if "mlp" in name)
    weights[name] = weights[name] + torch.ones_like(weights[name]) * 1e-6
    save_file(weights, model / WEIGHTS, {"format": "pt"})
    assert bench("--model", str(model), *SHORT)["digest"] != first["digest"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("TURNWISE_KEY_127_0_0_1", KEY)
    with judge_server(say) as running:
        yield running


def test_a_served_model_plays_greedily_and_is_not_asked_twice(bench: Command, server: Server, tmp_path: Path) -> None:
    flags = ("--endpoint", server.url, "--model", "m", "--envs.processes", "1", "--kept", str(tmp_path / "kept"))
    first = bench(*flags)
    asked = [one for one in server.asked if "messages" in one.body]
    assert {one.body["temperature"] for one in asked} == {0.0}
    assert first["figures"]["success"]["mean"] == 1 and first["figures"]["costs"] == {
        "turns": 30, "tokens": 90, "prompt_tokens": 300,
    }  # fmt: skip
    server.asked.clear()
    assert bench(*flags)["digest"] == first["digest"]
    assert sum(len(one.body["messages"]) > 1 for one in server.asked) == 0, "every episode was kept"
    with pytest.raises(UserError, match="holds episodes of other settings"):
        bench(*flags, "--seed", "1")
