"""What a run takes, from shapes alone: against this process's own tensors, and what ``doctor --model`` prints.

``benchmarks/memory.py`` measures resident memory of real passes; one of its cases runs here.
"""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from agents.model.settings import Attention
from agents.model.shapes import _Live, _row, passes
from benchmarks.memory import LIMIT, Case, Measured, measure
from runners import doctor
from runners.command_line.errors import UserError
from runners.loading.base_model import actor_on
from runners.settings.run_settings import RunSettings, read_settings
from runners.sizing.footprint import Footprint, config_of, footprint
from runners.sizing.machines import gpu_of

SMALL = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 5, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 300}


FEW = ("--hf.prefill-tokens", "200")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    Qwen3Config(**SMALL, tie_word_embeddings=True).save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def settings_of(folder: str, *argv: str) -> RunSettings:
    return read_settings(["--env", "identity", "--model", folder, "--token-budget", "300", *FEW, *argv])


@pytest.mark.parametrize(
    ("algo", "checkpointing"),
    [
        ("selfac", "--gradient-checkpointing"),
        ("grpo", "--no-gradient-checkpointing"),
        ("ppo", "--gradient-checkpointing"),
    ],
)
def test_the_pass_keeps_what_real_tensors_keep(folder: str, algo: str, checkpointing: str) -> None:
    settings = settings_of(folder, "--algo", algo, checkpointing)
    config = config_of(folder)
    critic = 24 if algo == "selfac" else 0

    def held(attention: Attention) -> float:
        how = {"wide": False, "merged": False}
        return passes(
            config, torch.float32, lambda m: actor_on(m, settings), 300, (1, 300), critic, **how, attention=attention
        ).learning

    row = _row(300, SMALL["vocab_size"], critic)

    def real(attention: str) -> float:
        actor = actor_on(
            AutoModelForCausalLM.from_config(config),
            settings_of(folder, "--algo", algo, checkpointing, "--attention", attention),
        )
        live = _Live()
        with live:
            for x in actor.parameters():
                live._made(x.untyped_storage())
            before = live.peak = live.bytes
            new = actor(row)
            sum(x.sum() for x in (new.logp_T, new.value_S, new.value_T) if x is not None).backward()  # type: ignore[union-attr]
        return (live.peak - before) * 300 / len(row)

    assert held(Attention.BLOCKS) == pytest.approx(real("blocks"), rel=0.1)
    assert held(Attention.COMPILED) == pytest.approx(real("compiled"), rel=0.1)
    assert 0.8 * held(Attention.BLOCKS) < held(Attention.COMPILED) < 0.99 * held(Attention.BLOCKS), "it keeps no masks"


def test_ranks_share_the_frozen_weights_of_the_layers(folder: str) -> None:
    config = config_of(folder)
    alone, whole, cut = (
        footprint(settings_of(folder, "--workers", "1", "--learner", learner), config, gpu=True).weights
        for learner in ("local", "ddp:5", "fsdp:5")
    )
    model = AutoModelForCausalLM.from_config(config)
    layer = sum(p.numel() * p.element_size() for p in model.model.layers[0].parameters())
    assert alone == whole and whole - cut == 5 * layer - layer - layer  # a fifth of five layers, and one gathered


def test_weights_and_trained_parameters_are_those_of_the_model(folder: str) -> None:
    settings = settings_of(folder)
    found = footprint(settings, config_of(folder), gpu=True)
    actor = actor_on(AutoModelForCausalLM.from_config(config_of(folder)), settings)
    trained = sum(p.numel() for p in (*actor.policy_parameters(), *actor.value_parameters()))
    assert found.trained == trained
    assert found.weights == 4 * (sum(p.numel() for p in actor.model.parameters()) - sum(
        p.numel() for p in actor.policy_parameters()))  # fmt: skip
    assert found.cache == 2 * settings.train.slots * settings.react.max_tokens * 5 * 2 * 16 * 4


@pytest.mark.runs
def test_every_saving_saves(folder: str) -> None:
    def of(*argv: str) -> Footprint:
        return footprint(settings_of(folder, *argv), config_of(folder), gpu=True)

    full = of("--no-gradient-checkpointing")
    kept = of("--gradient-checkpointing", "--slots", "2", "--lora.rank", "4")
    assert kept.learning < full.learning and kept.cache < full.cache and kept.adapter < full.adapter
    few = of("--dtype", "bfloat16", "--quantize", "nf4", "--token-budget", "200")
    assert few.weights < full.weights and few.cache == full.cache / 2 and few.engine < full.engine
    assert few.learning < full.learning
    layer = 64 * 16 * (4 + 2 + 2 + 4) + 3 * 64 * 160
    assert full.flops_token == 4 * 5 * layer and kept.flops_token == 6 * 5 * layer


def test_reading_with_merged_weights_keeps_nothing_for_the_adapter(folder: str) -> None:
    def of(merge: str) -> Footprint:
        return footprint(settings_of(folder, "--slots", "8", "--hf.merge", merge), config_of(folder), gpu=True)

    merged, apart = of("True"), of("False")
    assert merged.sampling < apart.sampling and merged.engine > apart.engine == 0
    assert merged.learning == apart.learning


def test_an_engine_in_c_keeps_little_beside_hidden_states(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(folder, "--slots", "1", "--hf.prefill-tokens", "2000", "--react.max-tokens", "2000")
    in_c = footprint(settings, config_of(folder), gpu=False).sampling
    assert in_c == 2000 * SMALL["hidden_size"] * 4
    monkeypatch.setattr("agents.engine.body.can_compile", lambda: False)
    assert footprint(settings, config_of(folder), gpu=False).sampling > 2 * in_c


@pytest.mark.runs
def test_the_estimate_holds_against_measured_memory() -> None:
    case = Case("2M", 6000)
    cell = measure(case)
    assert abs(cell.off) <= LIMIT
    for name in ("weights", "learning"):
        left = {key: value for key, value in cell.terms.items() if key != name}
        less = Measured(case, cell.peak, left)
        if cell.terms[name] > 0.3 * cell.peak:
            assert abs(less.off) > LIMIT, f"the measurement notices that {name} is missing"
    assert cell.terms["learning"] > 0.3 * cell.peak


# -- the command -----------------------------------------------------------------------------------------------------


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    monkeypatch.setattr(sys, "argv", ["turnwise doctor", *argv])
    doctor.main()
    return capsys.readouterr().out


@pytest.mark.runs
def test_the_doctor_says_whether_a_run_fits(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(
        monkeypatch, capsys, "--model", folder, "--gpu", "h100", "--algo", "grpo", "--token-budget", "300", *FEW
    )
    assert "fits H100 80GB (79.6 GiB" in text and "grpo" in text and "keys and values" in text
    large = ["--slots", "60000", "--react.max-tokens", "30000"]
    flex = said(monkeypatch, capsys, "--model", folder, "--gpu", "h100", "--attention", "flex", *FEW)
    assert "fits H100" in flex, "attention that only a GPU has can be asked about on a machine without one"
    with pytest.raises(UserError, match="FlexAttention trains on CUDA only"):
        said(monkeypatch, capsys, "--model", folder, "--attention", "flex", *FEW)
    assert "does not fit a GPU of 24 GB" in said(monkeypatch, capsys, "--model", folder, "--gpu", "24GB", *large, *FEW)
    told = json.loads(said(monkeypatch, capsys, "--model", folder, "--json", "--token-budget", "300", *FEW))
    assert told["fits"] and told["total"] > told["weights"] and told["machine"]["name"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--model", "tiny"], "fits any machine"),
        (["--gpu", "24"], "fits any machine"),
        (["--model", "no/such/folder"], "cannot read the shapes"),
        (["--model", "{folder}", "--gpu", "A100"], "more than one card"),
        (["--model", "{folder}", "--gpu", "abacus"], "is not known"),
        (["--model", "{folder}", "--token-bugdet", "3"], "unknown flag"),
    ],
)
def test_what_the_doctor_cannot_estimate_is_said_in_a_line(
    folder: str, argv: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=says):
        said(monkeypatch, capsys, *(arg.format(folder=folder) for arg in argv))


def test_cards_have_names_and_sizes() -> None:
    assert gpu_of("A100 80GB").bytes == gpu_of("a100 80gb").bytes > gpu_of("a100 40 GB").bytes
    assert gpu_of("RTX 4090").name == "RTX 4090 24GB" and gpu_of("24").bytes == 24 * 10**9
