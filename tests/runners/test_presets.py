"""Defaults by a model's size, and where each value of a run comes from."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from rich.console import Console

from agents.model.settings import LoraSettings
from runners.cloning.settings import TINY
from runners.command_line.errors import UserError
from runners.command_line.parse import named
from runners.settings import pretrained
from runners.settings.fitting import check_fit
from runners.settings.pretrained import PRESETS, config_file, parameters, preset_of
from runners.settings.run_settings import RunSettings, read_settings
from runners.settings.train_settings import Train
from runners.training import start

QWEN3 = {
    "Qwen3-0.6B": (1024, 3072, 28, 16, True, 0.596e9),
    "Qwen3-1.7B": (2048, 6144, 28, 16, True, 1.72e9),
    "Qwen3-4B": (2560, 9728, 36, 32, True, 4.02e9),
    "Qwen3-8B": (4096, 12288, 36, 32, False, 8.19e9),
    "Qwen3-32B": (5120, 25600, 64, 64, False, 32.8e9),
}
"""Width, feed-forward width, layers, heads, tied; parameters as published."""


def model(place: Path, name: str) -> Path:
    width, inner, layers, heads, tied, _ = QWEN3[name]
    (place / name).mkdir()
    shape = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "head_dim": 128}
    more = {"num_attention_heads": heads, "num_key_value_heads": 8, "tie_word_embeddings": tied, "vocab_size": 151936}
    (place / name / "config.json").write_text(json.dumps(shape | more))
    return place / name


def read(*argv: str) -> RunSettings:
    return read_settings(["--env", "identity", *argv])


@pytest.mark.parametrize("name", QWEN3)
def test_the_size_is_read_off_the_shapes(tmp_path: Path, name: str) -> None:
    assert parameters(str(model(tmp_path, name))) == pytest.approx(QWEN3[name][-1], rel=0.01)


@pytest.mark.parametrize(
    ("name", "index"), [("Qwen3-0.6B", 0), ("Qwen3-1.7B", 1), ("Qwen3-4B", 2), ("Qwen3-8B", 2), ("Qwen3-32B", 3)]
)
def test_a_model_has_the_defaults_of_its_size(tmp_path: Path, name: str, index: int) -> None:
    settings = read("--model", str(model(tmp_path, name)))
    preset = PRESETS[index]
    assert {key: getattr(settings.train, key) for key in preset.train} == preset.train
    assert settings.lora == LoraSettings(**preset.lora) and settings.lora.targets == "auto"
    check_fit(settings)


def test_the_tiny_model_keeps_its_own() -> None:
    settings = read()
    assert settings.train == Train(env=("identity",)) and settings.lora == LoraSettings()
    assert preset_of(TINY, None) is None


def test_what_is_named_wins_the_command_line_above_all(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"model: {model(tmp_path, 'Qwen3-4B')}\nlr: 1.0e-4\nepisodes: 8\nlora:\n  rank: 4\n")
    argv = ["--config", str(file), "--episodes", "16", "--no-gradient-checkpointing", "--lora.alpha=8"]
    settings = read(*argv)
    train, lora = settings.train, settings.lora
    assert (train.lr, train.episodes, train.gradient_checkpointing) == (1e-4, 16, False)
    assert (lora.rank, lora.alpha, lora.targets) == (4, 8, "auto")
    assert train.token_budget == PRESETS[2].train["token_budget"]


def test_the_first_line_says_where_each_value_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"model: {model(tmp_path, 'Qwen3-4B')}\nlr: 1.0e-4\nlora:\n  rank: 4\n")
    argv = ["--env", "identity", "--config", str(file), "--episodes", "16", "--no-gradient-checkpointing"]

    class StopError(Exception):
        pass

    def stop(*_: Any) -> None:
        raise StopError

    monkeypatch.setattr(start, "Training", stop)
    screen = io.StringIO()
    with pytest.raises(StopError):
        start.begin(read_settings([*argv, "--out", str(tmp_path / "run")]), Console(file=screen, width=500), argv)
    (line,) = screen.getvalue().splitlines()
    assert line.startswith("model of 4B parameters: ")
    by_origin = {part.rpartition(" (")[2].rstrip(")"): part for part in line.partition(": ")[2].split("; ")}
    assert set(by_origin) == {"flags", "settings.yaml", "preset 4B to 10B"}
    assert "episodes 16" in by_origin["flags"] and "gradient_checkpointing False" in by_origin["flags"]
    assert "lr 0.0001" in by_origin["settings.yaml"] and "lora.rank 4" in by_origin["settings.yaml"]
    assert "lora.targets auto" in by_origin["preset 4B to 10B"] and "lr" not in by_origin["preset 4B to 10B"].split()


def test_names_on_a_command_line(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("lr: 1.0\nlora:\n  rank: 4\n")
    flags, filed, name = named(["--config", str(file), "--token-budget=3", "--lora.alpha", "2", "--no-exact"])
    assert {"token_budget", "lora.alpha", "exact"} <= flags and filed == {"lr", "lora", "lora.rank"}
    assert name == "one.yaml"


def test_a_run_that_goes_on_from_a_pretrained_one_has_its_preset(tmp_path: Path) -> None:
    real = model(tmp_path, "Qwen3-8B")
    for name, base, before in (("real", real, "null"), ("tiny", TINY, "null"), ("later", TINY, tmp_path / "real")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"model: {base}\ninit_from: {before}\n")
    assert preset_of(TINY, tmp_path / "real") is preset_of(TINY, tmp_path / "later") is PRESETS[2]
    assert preset_of(TINY, tmp_path / "tiny") is None
    assert read("--init-from", str(tmp_path / "later")).lora.rank == PRESETS[2].lora["rank"]


def test_a_model_of_unknown_size_has_the_smallest_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": "wide"}')
    assert parameters(str(tmp_path)) is None
    assert preset_of(str(tmp_path), None) is PRESETS[0]
    assert "of unknown size" in pretrained.shown({**PRESETS[0].train, **_lora(PRESETS[0])}, PRESETS[0], str(tmp_path),
                                                 set(), set(), "")  # fmt: skip


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own download asks six times, for half a minute, before a mistyped flag would be told."""
    asked = []

    def silent(self: HfApi, url: str, **_: object) -> None:
        asked.append(url)
        raise OSError("Name or service not known")

    def never(*_: object) -> None:
        raise AssertionError("a download would be tried")

    monkeypatch.setattr(HfApi, "get_hf_file_metadata", silent)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", never)
    pretrained._of_hub.cache_clear()
    parameters.cache_clear()
    assert preset_of("some/model", None) is PRESETS[0]
    assert str(config_file("some/model")).endswith("no config.json: Name or service not known")
    assert len(asked) == 1 and asked[0].endswith("some/model/resolve/main/config.json")


def _lora(preset: pretrained.Preset) -> dict[str, Any]:
    return {f"lora.{name}": value for name, value in preset.lora.items()}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--engine", "vllm", "--workers", "1"], "--quantize works with --engine hf"),
        (["--hf.merge", "True"], "--quantize works with --engine hf"),
    ],
)
def test_what_cannot_work_with_quantised_weights_is_refused(argv: Sequence[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_fit(read("--quantize", "nf4", *argv))


def test_other_quantised_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="quantize"):
        read("--quantize", "int3")
    with pytest.raises(UserError, match="does not work with init_from"):
        read("--quantize", "nf4", "--init-from", str(tmp_path))
