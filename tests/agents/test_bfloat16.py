"""A base in bfloat16: log-probabilities, values and what is trained stay in float32, and gradients stay close."""

from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor
from tree_cases import CRITIC_PROMPT, actor_critic, base, gradients, loss_of, of_actions, trees, wake

from agents.engine.weights import PolicyWeights
from agents.model.actor_critic import ActorCritic
from agents.model.lora import MasterLinear
from agents.model.settings import LoraSettings
from agents.tree import Batch
from agents.tree.packing import pack

FAMILY = "qwen3"


def half(dtype: torch.dtype = torch.bfloat16, **options: Any) -> ActorCritic:
    model = ActorCritic(base(FAMILY).to(dtype), LoraSettings(rank=4), **options)
    wake(model)
    return model


@pytest.fixture
def batch() -> Batch:
    return pack(trees("several"), CRITIC_PROMPT)


def step(model: ActorCritic, batch: Batch) -> tuple[Tensor, Tensor]:
    """(log-probabilities, the whole gradient as one vector)."""
    out = model(batch)
    assert out.value_S is not None
    mine = batch.action_T[batch.action_rows]
    grads = gradients(model, loss_of(of_actions(batch, out), out.value_S, mine))
    assert all(g.dtype == torch.float32 for g in grads)
    return of_actions(batch, out).detach(), torch.cat([g.flatten() for g in grads])


def test_what_counts_is_float32(batch: Batch) -> None:
    model = half()
    out = model(batch)
    assert out.value_S is not None
    assert {out.logp_T.dtype, out.entropy_T.dtype, out.value_S.dtype} == {torch.float32}
    assert all(p.dtype == torch.float32 for p in (*model.policy_parameters(), *model.value_parameters()))
    assert model.hidden(batch).dtype == torch.bfloat16
    assert all(x.dtype == torch.float32 for x in model.adapter_state().values())
    # In float32, not in bfloat16 made wide: more than its 8 bits are there.
    assert not torch.equal(out.logp_T, out.logp_T.bfloat16().float())


def test_log_probabilities_and_gradient_are_close_to_those_of_float32(batch: Batch) -> None:
    """The bounds are those of 8 bits in a model whose weights were scaled until it is sharp."""
    exact_N, exact = step(actor_critic(FAMILY), batch)
    ours_N, ours = step(half(), batch)
    assert 1e-3 < (ours_N - exact_N).abs().mean() <= 0.02
    assert torch.cosine_similarity(ours, exact, dim=0) >= 0.999
    assert (ours - exact).norm() <= 0.06 * exact.norm()
    # The control: a gradient of other episodes, measured alike.
    other = step(half(), pack(trees("several", 1), CRITIC_PROMPT))[1]
    assert torch.cosine_similarity(other, exact, dim=0) < 0.9


def saved(model: ActorCritic, batch: Batch) -> int:
    """Bytes that autograd keeps of a pass through the layers."""
    kept: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        hidden_TD = model.hidden(batch)
    del hidden_TD
    return sum(kept.values())


def test_no_input_is_kept_in_float32_for_lora(batch: Batch) -> None:
    model = half()
    layers = [m for m in model.modules() if isinstance(m, LoraLayer)]
    assert layers and all(type(layer.lora_A["default"]) is MasterLinear for layer in layers)
    ours, ours_N = saved(model, batch), step(model, batch)[0]
    for layer in layers:  # as PEFT does it
        layer.cast_input_dtype_enabled = True
        for matrix in (layer.lora_A["default"], layer.lora_B["default"]):
            matrix.__class__ = torch.nn.Linear
    assert saved(model, batch) > 1.2 * ours
    assert (step(model, batch)[0] - ours_N).abs().mean() <= 0.05


def test_other_types_are_left_alone() -> None:
    for dtype in (torch.float32, torch.float64):
        assert not any(isinstance(m, MasterLinear) for m in half(dtype).modules())


@torch.no_grad()
def test_the_engine_multiplies_as_the_trainer_does() -> None:
    model = half(critic=None)
    weights = PolicyWeights(model.model, None, None, torch.device("cpu"))
    ours, theirs = ([m for m in x.modules() if isinstance(m, LoraLayer)] for x in (model, weights.model))
    assert len(ours) == len(theirs) > 0
    for mine, engines in zip(ours, theirs, strict=True):
        x_ND = torch.randn(3, mine.in_features, dtype=torch.bfloat16)
        assert isinstance(engines.lora_A["default"], MasterLinear) and mine(x_ND).dtype == torch.bfloat16
        assert torch.equal(mine(x_ND), engines(x_ND))
