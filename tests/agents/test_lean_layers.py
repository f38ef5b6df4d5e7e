"""Norms and gated MLPs with fewer operations give what transformers' own give, forwards and backwards."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig, Qwen3Config

from agents.model import lean_layers
from agents.model.known_code import TURN
from agents.model.lean_layers import make_lean

SMALL = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "head_dim": 8}


def model(config: type) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(config(**SMALL)).eval()
        for name, weight in made.named_parameters():
            if "norm" in name:
                nn.init.uniform_(weight, 0.5, 2.0)
    return made


def numbers(made: nn.Module, frozen: bool) -> list[Tensor]:
    """Logits, and the gradients of the inputs and of every weight that is trained."""
    for weight in made.parameters():
        weight.requires_grad_(not frozen)
        weight.grad = None
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, 9, 32, generator=generator).requires_grad_()
    logits = made(inputs_embeds=x).logits
    logits.backward(torch.randn(logits.shape, generator=generator))
    grads = [p.grad for p in made.parameters() if p.grad is not None]
    with torch.no_grad():
        again = made(inputs_embeds=x).logits
    assert torch.allclose(again, logits, atol=1e-5)
    return [logits.detach(), x.grad, *grads]  # type: ignore[list-item]


def off(made: list[Tensor], truth: list[Tensor]) -> float:
    """Largest difference relative to the largest entry."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(made, truth, strict=True))


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("config", [LlamaConfig, Qwen3Config, MistralConfig])
@pytest.mark.parametrize("compiled", [True, False])
def test_numbers_and_gradients(config: type, frozen: bool, compiled: bool, one_thread: None) -> None:
    plain = model(config)
    lean = copy.deepcopy(plain)
    make_lean(lean, compiled=compiled)
    turning = [m for m in lean.modules() if m.forward.__globals__.get(TURN) is lean_layers.turned]  # type: ignore[attr-defined]
    assert len(turning) == (2 if compiled else 0)
    assert sum(isinstance(m, lean_layers.Norm | lean_layers.Gated) for m in lean.modules()) >= 7
    assert [type(m).__name__ for m in lean.modules()] == [type(m).__name__ for m in plain.modules()]
    assert off(numbers(lean, frozen), numbers(plain, frozen)) <= 1e-5
    twin = copy.deepcopy(lean)
    assert all(torch.equal(a, b) for a, b in zip(numbers(twin, frozen), numbers(lean, frozen), strict=True))


def test_the_test_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = model(Qwen3Config)
    lean = copy.deepcopy(plain)
    make_lean(lean)
    right = lean_layers._inverse
    monkeypatch.setattr(lean_layers, "_inverse", lambda x, eps: right(x, eps) * 1.001)
    assert off(numbers(lean, True), numbers(plain, True)) > 1e-4


def test_other_code_stays_as_it_is() -> None:
    """Gemma's norm multiplies by 1 + weight, and its MLP by another activation."""
    plain = model(Gemma2Config)
    lean = copy.deepcopy(plain)
    make_lean(lean)
    assert not any(isinstance(m, lean_layers.Norm) for m in lean.modules())
    assert all(torch.equal(a, b) for a, b in zip(numbers(lean, True), numbers(plain, True), strict=True))


def test_other_types_are_computed_as_before() -> None:
    plain = model(Qwen3Config).bfloat16()
    lean = copy.deepcopy(plain)
    make_lean(lean)
    x = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    norms = [next(m for n, m in made.named_modules() if n.endswith("input_layernorm")) for made in (plain, lean)]
    assert torch.equal(norms[0](x), norms[1](x))
