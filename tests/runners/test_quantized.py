"""Frozen weights in 4 and 8 bits. What needs bitsandbytes is skipped without it, unless TURNWISE_NEEDS_BITSANDBYTES."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, Qwen3Config

from agents.engine.base import Request
from agents.engine.hf import HFEngine
from agents.model.actor_critic import ActorCritic
from agents.text.errors import ModelError
from agents.tree import Batch, Kind, Node
from agents.tree.packing import pack
from runners.command_line.errors import UserError
from runners.evaluation.policies import load_policies
from runners.exporting.program import export
from runners.loading import quantized
from runners.loading.base_model import _model
from runners.loading.quantized import is_quantized, loading, settle
from runners.train import begin

CPU = torch.device("cpu")
needs = pytest.mark.skipif(
    find_spec("bitsandbytes") is None and not os.environ.get("TURNWISE_NEEDS_BITSANDBYTES"),
    reason="bitsandbytes is not installed",
)
BOUND = {"int8": 0.02, "nf4": 0.15}
"""Mean difference of a token's log-probability from that of the same model in float32."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    place = str(tmp_path_factory.mktemp("model"))
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = Qwen3Config(**shape, num_key_value_heads=2, head_dim=32, vocab_size=500)
    AutoModelForCausalLM.from_config(config).save_pretrained(place)
    return place


def actor(folder: str, kind: str, device: torch.device = CPU, *, settled: bool = True) -> ActorCritic:
    model = _model(folder, "float32", **loading(kind, device))
    if kind == "none":
        model.to(device)
    elif settled:
        settle(model)
    return ActorCritic(model.eval())


def row(device: torch.device = CPU) -> Batch:
    root = state = Node(Kind.STATE, tuple(range(40)))
    for turn in range(3):
        action = state.add(Node(Kind.ACTION, tuple(range(60 + turn, 80 + turn)), logp=(0.0,) * 20))
        state = action.add(Node(Kind.STATE, tuple(range(100, 130))))
    return pack([root], (3, 4, 5), device)


def near_and_gradients_flow(folder: str, kind: str, device: torch.device = CPU) -> None:
    batch, plain, few = row(device), actor(folder, "none", device), actor(folder, kind, device)
    assert is_quantized(few) and not is_quantized(plain)
    new = few(batch)
    off = (new.logp_T - plain(batch).logp_T).abs()[batch.action_T >= 0].mean()
    assert 1e-4 < off < BOUND[kind]
    (new.logp_T.sum() + new.value_S.sum()).backward()
    grads = [p.grad for p in few.policy_parameters()]
    assert all(g is not None and g.isfinite().all() for g in grads) and any(g.abs().sum() > 0 for g in grads)


def gradient_of_the_rounded_weights(folder: str, kind: str, device: torch.device = CPU) -> None:
    few = actor(folder, kind, device)
    layer = few.causal_model.model.layers[0].mlp.up_proj.get_base_layer()
    x = torch.randn(5, 128).to(device).requires_grad_()
    times = torch.arange(5.0, device=device)[:, None]
    weight_OI = layer(torch.eye(128, device=device)).detach().T
    (layer(x) * times).sum().backward()
    assert torch.allclose(layer(x), x @ weight_OI.T, atol=1e-5)
    assert x.grad is not None and torch.allclose(x.grad, times * weight_OI.sum(0), atol=1e-4)


@needs
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_log_probabilities_are_near_and_gradients_flow(folder: str, kind: str) -> None:
    near_and_gradients_flow(folder, kind)


@needs
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_the_gradient_is_that_of_the_rounded_weights(folder: str, kind: str) -> None:
    gradient_of_the_rounded_weights(folder, kind)


def apart(few: ActorCritic) -> float:
    """Largest difference between the engine and the trainer over sampled tokens, after a pass without gradient."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in few.policy_parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=generator).to(p))
        few(row(few.device))
    engine = HFEngine(few.model, [1], max_length=100, slots=3)
    prompts = [tuple(range(5 + s, 40 + 3 * s)) for s in range(3)]
    for session, prompt in enumerate(prompts):
        engine.submit(Request(session, prompt, 20, seed=session))
    worst = 0.0
    while engine.pending:
        for done in engine.step():
            root = Node(Kind.STATE, prompts[done.session])
            root.add(Node(Kind.ACTION, done.tokens, logp=done.logp)).add(Node(Kind.STATE, (7,)))
            batch = pack([root], device=few.device)
            off = (few(batch).logp_T - batch.old_logp_T)[batch.action_T >= 0].abs().max()
            worst = max(worst, float(off.detach()))
    return worst


@needs
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_rollout_is_trainer(folder: str, kind: str) -> None:
    assert apart(actor(folder, kind)) < 1e-5


@needs
def test_the_kernels_of_bitsandbytes_that_round_activations_would_not_be(folder: str) -> None:
    try:
        off = apart(actor(folder, "int8", settled=False))
    except ModelError as refused:  # the probe of trees may see it first
        assert "differently" in str(refused)
    else:
        assert off > 1e-5


@needs
def test_a_merge_is_refused(folder: str) -> None:
    with pytest.raises(ModelError, match="cannot be merged"):
        HFEngine(actor(folder, "nf4").model, [1], max_length=100, slots=1, merge=True)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'turnwise\[quantize\]'"):
        loading("nf4", CPU)
    assert loading("none", CPU) == {}


def test_devices_that_are_not_served_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized, "find_spec", lambda _: True)
    with pytest.raises(UserError, match="not on mps"):
        loading("int8", torch.device("mps"))


@needs
@pytest.mark.runs
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_a_whole_run_and_its_evaluation(kind: str, tmp_path: Path) -> None:
    pretrain = ["--pretrain.demonstrations", "20", "--pretrain.steps", "5"]
    run = ["--env", "identity", "--updates", "1", "--episodes", "8", "--minibatches", "1", "--eval-every", "0"]
    argv = [
        *run,
        *pretrain,
        "--test-tasks",
        "0",
        "--react.max-action-tokens",
        "6",
        "--quantize",
        kind,
        "--out",
        str(tmp_path / "run"),
    ]
    with begin(argv, Console(quiet=True)) as training:
        assert is_quantized(training.model)
        training.run()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (apart,) = (line["mismatch_max_abs"] for line in lines if "mismatch_max_abs" in line)
    assert apart < 1e-5
    with pytest.raises(UserError, match="trained with --quantize"):
        export(tmp_path / "run", None, Console(quiet=True))
    loaded = load_policies(str(tmp_path / "run"), training.settings.play(), Console(quiet=True))
    assert is_quantized(loaded.worker.engine.model) and set(loaded.adapters) == {"base", "trained"}
    loaded.worker.close()
