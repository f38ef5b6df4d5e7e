"""A batch cut into parts gives the same loss and the same gradient, for losses that couple everything."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor
from tree_cases import CRITIC_PROMPT, FAMILIES, Loss, actor_critic, base, coupled, gradients, relative, trees, wake

from agents.model.actor_critic import ActorCritic
from agents.text.errors import ModelError
from agents.tree import Batch, Forward
from agents.tree.chunked_backward import Kept, backward, cut, forward_parts, with_graph
from agents.tree.packing import pack
from agents.tree.token_budget import TokenBudget


def batch_of(shape: str) -> Batch:
    return pack(trees(shape), CRITIC_PROMPT)


def budget_for(batch: Batch, pieces: int) -> int:
    """The largest budget that cuts the batch into this many parts (or more, where an exact number is impossible)."""
    longest = int(batch.pos_T.max()) + 1
    return next(b for b in range(len(batch), longest - 1, -1) if len(cut(batch, b)) >= pieces)


def grads_of(model: ActorCritic, batch: Batch, budget: int, kept: Kept | None = None) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = backward(model, batch, coupled(batch), budget, kept)
    return loss.total.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_cut_into_pieces(family: str, pieces: int) -> None:
    batch = batch_of("several")
    model = actor_critic(family)
    budget = budget_for(batch, pieces)
    assert len(cut(batch, budget)) == pieces
    whole = coupled(batch)(model(batch)).total
    loss, grads = grads_of(model, batch, budget)
    assert (loss - whole).abs() <= 1e-5
    assert relative(grads, gradients(model, whole)) <= 1e-5


@pytest.mark.parametrize("shape", ["group", "forks", "bushy"])
@pytest.mark.parametrize("pieces", [2, 5])
def test_one_tree_in_pieces_float64(shape: str, pieces: int) -> None:
    """Rounding aside, what is left is 1e-7: Hugging Face computes rotary angles and norms in float32."""
    batch = batch_of(shape)
    model = ActorCritic(base("llama").double())
    wake(model)
    budget = budget_for(batch, pieces)
    whole = coupled(batch)(model(batch)).total
    loss, grads = grads_of(model, batch, budget)
    assert (loss - whole).abs() <= 1e-10
    assert relative(grads, gradients(model, whole)) <= 1e-6


@pytest.mark.parametrize("shape", ["chain", "group", "forks", "bushy", "several"])
def test_parts_fit_and_own_everything_once(shape: str) -> None:
    batch = batch_of(shape)
    longest = int(batch.pos_T.max()) + 1
    for budget in {longest, longest + 7, len(batch) - 1} - {len(batch)}:
        parts = cut(batch, max(budget, longest))
        owned = torch.cat([part.mine(part.row_P) for part in parts])
        assert torch.equal(owned, torch.arange(len(batch)))
        read = torch.cat([part.row_P[part.batch.action_T >= 0] for part in parts])
        assert torch.equal(read, torch.nonzero(batch.action_T >= 0).flatten())
        asked = torch.cat([torch.nonzero(part.batch.critic_S >= 0).flatten() for part in parts])
        assert torch.equal(asked.sort().values, torch.arange(batch.critic_S.numel()))
        for part in parts:
            assert len(part.batch) <= max(budget, longest)
            assert_is_subtree(batch, part.batch, part.row_P)


def assert_is_subtree(batch: Batch, piece: Batch, row_P: Tensor) -> None:
    """Parents, depths and ends of the part are those of its rows, counted anew."""
    place = {int(row): place for place, row in enumerate(row_P)}
    for here, row in enumerate(row_P.tolist()):
        parent = int(batch.parent_T[row])
        assert int(piece.parent_T[here]) == (place[parent] if parent >= 0 else -1)
        assert int(piece.pos_T[here]) == int(batch.pos_T[row])
        assert int(piece.end_T[here]) == sum(1 for other in row_P.tolist() if other < int(batch.end_T[row]))
    rows = torch.nonzero(piece.critic_S >= 0).flatten()
    assert torch.equal(row_P[piece.critic_S[rows]], batch.critic_S[rows])


def test_cuts_prefer_the_roots() -> None:
    """Three trees under a budget of the largest one: nothing is repeated."""
    batch = batch_of("several")
    sizes = [int((batch.end_T[row]) - row) for row in torch.nonzero(batch.parent_T < 0).flatten()]
    parts = cut(batch, max(sizes) + 3)
    assert sum(len(part.batch) for part in parts) == len(batch)


def test_a_path_that_does_not_fit_is_refused() -> None:
    batch = batch_of("chain")
    with pytest.raises(ModelError, match="raise the token budget"):
        cut(batch, int(batch.pos_T.max()))


def test_forward_in_parts_equals_the_whole() -> None:
    batch = batch_of("several")
    model = actor_critic("qwen3")
    whole, parts = model(batch), forward_parts(model, batch, budget_for(batch, 5))
    assert not parts.logp_T.requires_grad
    assert whole.value_T is None and parts.value_T is None
    for column in fields(Forward)[:3]:
        assert (getattr(whole, column.name) - getattr(parts, column.name)).abs().max() <= 1e-5


def test_a_forward_whose_graph_was_kept_is_descended_from() -> None:
    batch, model = batch_of("group"), actor_critic("llama")
    budget = TokenBudget(len(batch))
    loss, truth = grads_of(model, batch, budget.tokens)
    kept = with_graph(model, batch, budget)
    before = model.counters.passes
    mine, grads = grads_of(model, batch, budget.tokens, kept)
    assert model.counters.passes == before and not kept
    assert torch.equal(mine, loss) and all(torch.equal(a, b) for a, b in zip(grads, truth, strict=True))
    assert with_graph(model, batch, TokenBudget(budget_for(batch, 2))) == [], "it takes several passes"


def test_a_batch_without_critic_prompts_can_be_cut() -> None:
    batch = pack(trees("group"))
    model = actor_critic("llama")
    model.zero_grad()

    def loss(out: Forward) -> Loss:
        return Loss(out.logp_T.sum().square())

    ours = backward(model, batch, loss, budget_for(batch, 2)).total
    cut_grads = [p.grad.clone() for p in model.policy_parameters()]
    whole = loss(model(batch)).total
    assert (ours - whole).abs() <= 1e-5 * whole.abs()
    assert relative(cut_grads, list(torch.autograd.grad(whole, model.policy_parameters()))) <= 1e-5
    assert all(p.grad is None for p in model.value_parameters())
