"""The exactness protocol with Hugging Face models: one packed forward equals one ordinary forward per path."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from tree_cases import (
    CRITIC_PROMPT,
    FAMILIES,
    SHAPES,
    actor_critic,
    gradients,
    loss_of,
    of_actions,
    relative,
    trees,
    truth,
)

from agents.model.actor_critic import ActorCritic
from agents.model.attention.blocks import TreePlan
from agents.model.attention.compiled import CompiledPlan
from agents.model.attention.interface import marker_mask
from agents.model.settings import Attention
from agents.tree import Batch
from agents.tree.packing import pack

TIGHT = 1e-5
PLANS = {Attention.BLOCKS: TreePlan, Attention.COMPILED: CompiledPlan}
"""What computes attention on a CPU."""
each_way = pytest.mark.parametrize("way", PLANS)


@pytest.fixture(scope="module", params=product(FAMILIES, PLANS), ids=lambda pair: f"{pair[0]}-{pair[1]}")
def model(request: pytest.FixtureRequest) -> ActorCritic:
    family, way = request.param
    return actor_critic(family, temperature=0.8, attention=way)


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_equals_one_forward_per_path(model: ActorCritic, shape: str) -> None:
    roots = trees(shape)
    batch = pack(roots, CRITIC_PROMPT)
    out = model(batch)
    logp_N, value_S = truth(model, roots)
    action_N = batch.action_T[batch.action_T >= 0]
    assert out.value_S is not None
    assert (of_actions(batch, out) - logp_N).abs().max() <= TIGHT
    assert (out.value_S - value_S).abs().max() <= TIGHT
    packed, separate = loss_of(of_actions(batch, out), out.value_S, action_N), loss_of(logp_N, value_S, action_N)
    assert (packed - separate).abs() <= TIGHT
    assert relative(gradients(model, packed), gradients(model, separate)) <= TIGHT


def test_full_parameter_training_is_exact_too() -> None:
    model = actor_critic("qwen3", lora=None)
    roots = trees("several")
    batch = pack(roots, CRITIC_PROMPT)
    out = model(batch)
    action_N = batch.action_T[batch.action_T >= 0]
    packed = loss_of(of_actions(batch, out), out.value_S, action_N)
    separate = loss_of(*truth(model, roots), action_N)
    assert relative(gradients(model, packed), gradients(model, separate)) <= TIGHT


def test_critic_prompts_change_nothing_for_the_actor(model: ActorCritic) -> None:
    roots = trees("several")
    with_prompts, without = pack(roots, CRITIC_PROMPT), pack(roots)
    ours, plain = model(with_prompts), model(without)
    assert plain.value_S is None
    assert (of_actions(with_prompts, ours) - of_actions(without, plain)).abs().max() <= TIGHT


def spoiled(
    model: ActorCritic, batch: Batch, end_T: torch.Tensor, pos_T: torch.Tensor, plan: type[TreePlan]
) -> torch.Tensor:
    """Log-probabilities when the attention sees ``end_T`` and the rotary embedding ``pos_T``."""
    depth_T = torch.arange(len(batch)) if end_T is not batch.end_T else batch.pos_T  # what the plan calls depth
    hidden = model.causal_model.base_model(
        input_ids=batch.token_T[None],
        position_ids=pos_T[None],
        attention_mask=marker_mask(model.device),
        use_cache=False,
        tree_plan=plan(depth_T, end_T),
    ).last_hidden_state[0]
    rows = torch.nonzero(batch.action_T >= 0).squeeze(1)
    table = torch.log_softmax(model.logits(hidden[batch.parent_T[rows]]) / model.temperature, dim=-1)
    return table[torch.arange(len(rows)), batch.token_T[rows]]


@torch.no_grad()
@each_way
def test_negative_controls_fail(way: Attention) -> None:
    """The same comparison, with one thing wrong at a time: it must notice."""
    model, plan = actor_critic("llama", attention=way), PLANS[way]
    roots = trees("chain")
    batch = pack(roots, CRITIC_PROMPT)
    logp_N, _ = truth(model, roots)
    right = spoiled(model, batch, batch.end_T, batch.pos_T, plan)
    causal_only = spoiled(model, batch, torch.full_like(batch.end_T, len(batch)), batch.pos_T, plan)
    linear = spoiled(model, batch, batch.end_T, torch.arange(len(batch)), plan)
    row_before = replace(batch, parent_T=torch.arange(len(batch)) - 1)
    assert (right - logp_N).abs().max() <= TIGHT
    assert (causal_only - logp_N).abs().max() > 0.1
    assert (linear - logp_N).abs().max() > 0.1
    assert (of_actions(batch, model(row_before)) - logp_N).abs().max() > 0.1


@torch.no_grad()
@each_way
def test_the_window_matters_here(way: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    """The episodes are longer than Mistral's window, so the sliding case is really tested."""
    model, plan = actor_critic("mistral", attention=way), PLANS[way]
    batch = pack(trees("chain"), CRITIC_PROMPT)
    exact = model(batch).logp_T
    with_window = plan.attend
    monkeypatch.setattr(plan, "attend", lambda self, q, k, v, window, scale: with_window(self, q, k, v, None, scale))
    assert (model(batch).logp_T - exact).abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunks_of_logits_change_nothing(chunk: int) -> None:
    batch = pack(trees("forks"), CRITIC_PROMPT)
    whole, parts = actor_critic("llama"), actor_critic("llama", chunk=chunk)
    for name in ("logp_T", "entropy_T", "value_S"):
        assert (getattr(whole(batch), name) - getattr(parts(batch), name)).abs().max() <= 1e-6


def test_gradient_through_checkpointed_chunks() -> None:
    batch = pack(trees("forks"), CRITIC_PROMPT)
    whole, parts = actor_critic("llama"), actor_critic("llama", chunk=3)
    ours = gradients(parts, parts(batch).logp_T.sum() + parts(batch).value_S.sum())
    assert relative(ours, gradients(whole, whole(batch).logp_T.sum() + whole(batch).value_S.sum())) <= TIGHT


def kept(model: ActorCritic, batch: Batch) -> tuple[int, list[torch.Tensor]]:
    """Bytes that the forward keeps for the backward pass, and the gradient."""
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model(batch)
    assert out.value_S is not None
    return sum(saved.values()), gradients(model, out.logp_T.sum() + out.value_S.sum())


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpointed_layers_keep_less_and_give_the_same_gradient(family: str) -> None:
    batch = pack(trees("several"), CRITIC_PROMPT)
    size, plain = kept(actor_critic(family), batch)
    model = actor_critic(family, checkpointing=True)
    less, ours = kept(model, batch)
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))
    assert less < size / 3
    model.model.eval()  # what evaluation mode does to the layers: silently, nothing is checkpointed any more
    assert kept(model, batch)[0] > 0.9 * size
    model.train()
    assert kept(model, batch)[0] == less


def test_entropy_is_that_of_the_sampling_distribution_and_carries_no_gradient() -> None:
    model = actor_critic("llama", temperature=0.7)
    batch = pack(trees("forks"))
    out = model(batch)
    probabilities = torch.softmax(model.logits(model.hidden(batch))[batch.parent_T] / 0.7, dim=-1)
    expected_T = torch.distributions.Categorical(probs=probabilities).entropy()
    mine = batch.action_T >= 0
    assert (out.entropy_T - expected_T)[mine].abs().max() <= 1e-5
    assert not out.entropy_T.requires_grad
    assert not out.entropy_T[~mine].any() and not out.logp_T[~mine].any()
