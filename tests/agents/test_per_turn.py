"""A batch taken apart into a row per turn and per value: the numbers and the gradient of the one pass."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from tree_cases import (
    CRITIC_PROMPT,
    SHAPES,
    actions,
    actor_critic,
    base,
    gradients,
    loss_of,
    relative,
    states,
    trees,
    truth,
    wake,
)

from agents.model.actor_critic import ActorCritic
from agents.tree import Batch, Forward
from agents.tree.chunked_backward import cut
from agents.tree.packing import pack
from agents.tree.unpacked import PerTurn, backward_apart, forward_apart


@dataclass(frozen=True)
class Loss:
    total: Tensor


def total(batch: Batch, out: Forward) -> Tensor:
    mine = batch.action_T >= 0
    assert out.value_S is not None
    return loss_of(out.logp_T[mine], out.value_S, batch.action_T[mine])


def step(model: ActorCritic, batch: Batch, budget: int) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = backward_apart(model, batch, lambda out: Loss(total(batch, out)), budget)
    return loss.total.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_numbers_are_those_of_one_pass_and_of_the_paths(shape: str) -> None:
    model, roots = actor_critic("qwen3"), trees(shape)
    batch = pack(roots, CRITIC_PROMPT)
    whole, apart = model(batch), PerTurn.of(batch)
    out = apart.gather(model(apart.rows))
    logp, value = truth(model, roots)
    for ours, packed, slow in (
        (out.logp_T[batch.action_T >= 0], whole.logp_T[batch.action_T >= 0], logp),
        (out.value_S, whole.value_S, value),
    ):
        assert (ours - packed).abs().max() <= 1e-5 and (ours - slow).abs().max() <= 1e-5
    assert (out.entropy_T - whole.entropy_T).abs().max() <= 1e-5


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_loss_and_gradient_are_those_of_one_pass_under_any_budget(pieces: int) -> None:
    model, batch = actor_critic("qwen3"), pack(trees("several"), CRITIC_PROMPT)
    apart = PerTurn.of(batch)
    longest = int(apart.rows.pos_T.max()) + 1
    budget = next(b for b in range(len(apart.rows), longest - 1, -1) if len(cut(apart.rows, b)) >= pieces)
    whole = total(batch, model(batch))
    loss, grads = step(model, batch, budget)
    assert (loss - whole).abs() <= 1e-5
    assert relative(grads, gradients(model, whole)) <= 1e-5
    parts = forward_apart(model, batch, budget)
    assert (parts.logp_T - model(batch).logp_T).abs().max() <= 1e-5


def test_in_float64() -> None:
    """What is left is what Hugging Face computes in float32."""
    model = ActorCritic(base("llama").double())
    wake(model)
    batch = pack(trees("several"), CRITIC_PROMPT)
    whole = total(batch, model(batch))
    loss, grads = step(model, batch, len(PerTurn.of(batch).rows))
    assert (loss - whole).abs() <= 1e-10
    assert relative(grads, gradients(model, whole)) <= 1e-6


def test_every_prefix_is_encoded_anew() -> None:
    """A row per action and one per state: what a trainer encodes that knows turns only."""
    roots = trees("several")
    batch = pack(roots, CRITIC_PROMPT)
    rows = PerTurn.of(batch).rows
    paths = [tokens for tokens, _ in states(roots)]
    before = [tokens[: len(tokens) - own] for tokens, own in states(roots) if len(tokens) > own]
    assert len(before) == len(actions(roots))
    assert len(rows) == sum(map(len, before)) + sum(len(p) + len(CRITIC_PROMPT) for p in paths)
    assert int((rows.pos_T == 0).sum()) == len(before) + len(paths)
    model = actor_critic()
    model(rows)
    assert model.counters.tokens == len(rows)
    assert model.counters.critic_tokens == len(CRITIC_PROMPT) * len(paths)


def test_a_row_that_misses_its_first_token_is_noticed() -> None:
    model, batch = actor_critic("qwen3"), pack(trees("several"), CRITIC_PROMPT)
    apart = PerTurn.of(batch)
    rows = apart.rows
    ids = torch.where(rows.pos_T == 0, 0, rows.token_T)
    out = apart.gather(model(replace(rows, token_T=ids)))
    assert (out.logp_T - model(batch).logp_T).abs().max() > 0.1


def test_without_critic_prompts_there_are_rows_of_turns_only() -> None:
    model, batch = actor_critic(), pack(trees("group"))
    apart = PerTurn.of(batch)
    out = apart.gather(model(apart.rows))
    assert out.value_S is None and int((apart.rows.pos_T == 0).sum()) == batch.state_A.numel()
    assert (out.logp_T - model(batch).logp_T).abs().max() <= 1e-5
