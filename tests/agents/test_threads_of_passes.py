"""Passes in several threads: the same loss and gradient as in one, whatever the timing."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from random import Random
from threading import get_ident

import pytest
import torch
from torch import Tensor
from tree_cases import CRITIC_PROMPT, Loss, actor_critic, base, chain, coupled, group, relative, wake

from agents.compiled import layers
from agents.compiled.threads import allowed, allowing
from agents.model.actor_critic import ActorCritic
from agents.model.settings import Attention
from agents.text.errors import ModelError
from agents.tree import Batch, Forward, threads
from agents.tree.chunked_backward import backward, forward_parts
from agents.tree.packing import pack
from agents.tree.threads import backward_in_threads, forward_in_threads, graph_in_threads
from agents.tree.token_budget import TokenBudget

needs_compiler = pytest.mark.skipif(bool(layers.missing()), reason="no C compiler")


@pytest.fixture(autouse=True)
def two(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, for the smallest batch, and one of PyTorch's."""
    monkeypatch.setattr(threads, "WORTH", 1)
    with allowing(2):
        yield


def several() -> Batch:
    rng = Random(3)
    return pack([group(rng, 3), chain(rng, 3), group(rng, 2), chain(rng, 4)], CRITIC_PROMPT)


def learned(
    down: Callable[..., Loss], model: ActorCritic, batch: Batch, **options: object
) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = down(model, batch, coupled(batch), TokenBudget(len(batch)), **options)
    return loss.total.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@needs_compiler
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_loss_and_gradient_are_those_of_one_pass(count: int, checkpointing: bool) -> None:
    batch, model = several(), ActorCritic(base("qwen3").double(), checkpointing=checkpointing)
    wake(model)
    truth, grads = learned(backward, model, batch)
    passes = model.counters.passes
    with allowing(count):
        loss, mine = learned(backward_in_threads, model, batch)
    assert model.counters.passes == passes + count
    assert (loss - truth).abs() <= 1e-10 and relative(mine, grads) <= 1e-6
    kept = graph_in_threads(model, batch, TokenBudget(len(batch)))
    apart = sum(coupled(part.batch)(numbers).total.item() for part, numbers in kept)
    assert abs(apart - float(truth)) > 1e-3, "what each part makes of its own numbers alone is something else"


@needs_compiler
def test_the_same_bits_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In two threads at once, or one after the other, last first."""
    batch, model = several(), actor_critic("qwen3", attention=Attention.COMPILED)
    loss, grads = learned(backward_in_threads, model, batch)
    again = learned(backward_in_threads, model, batch)
    monkeypatch.setattr(threads, "in_threads", lambda calls: [call() for call in reversed(calls)])
    one_by_one = learned(backward_in_threads, model, batch)
    for other, theirs in (again, one_by_one):
        assert torch.equal(loss, other) and all(torch.equal(a, b) for a, b in zip(grads, theirs, strict=True))


@needs_compiler
def test_gradients_are_added_to_those_there_are() -> None:
    batch, model = several(), actor_critic("llama")
    _, once = learned(backward_in_threads, model, batch)
    backward_in_threads(model, batch, coupled(batch), len(batch))
    twice = [p.grad for p in model.parameters() if p.grad is not None]
    assert relative(twice, [2 * grad for grad in once]) <= 1e-6


def test_a_forward_has_no_graph_and_equals_the_whole() -> None:
    batch, model = several(), actor_critic("mistral")
    whole, parts = forward_parts(model, batch, len(batch)), forward_in_threads(model, batch, len(batch))
    assert not parts.logp_T.requires_grad and parts.value_S is not None and not parts.value_S.requires_grad
    for column in (field.name for field in fields(Forward)):
        a, b = getattr(whole, column), getattr(parts, column)
        assert (a is None) == (b is None) and (a is None or (a - b).abs().max() <= 1e-5)


@needs_compiler
def test_a_graph_that_was_kept_is_descended_from_once() -> None:
    batch, model = several(), actor_critic("llama")
    truth, grads = learned(backward_in_threads, model, batch)
    kept, passes = graph_in_threads(model, batch, TokenBudget(len(batch))), model.counters.passes
    assert len(kept) == 2
    loss, mine = learned(backward_in_threads, model, batch, kept=kept)
    assert model.counters.passes == passes and not kept
    assert torch.equal(loss, truth) and all(torch.equal(a, b) for a, b in zip(mine, grads, strict=True))


@pytest.mark.parametrize("why", ["one thread", "few tokens", "several passes", "one long episode", "PyTorch's threads"])
def test_what_is_for_one_thread_is_one_pass(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = several(), actor_critic("llama")
    budget, count = len(batch), 1 if why == "one thread" else 2
    if why == "few tokens":
        monkeypatch.setattr(threads, "WORTH", len(batch))
    if why == "several passes":
        budget = int(batch.pos_T.max()) + 1
    if why == "one long episode":
        batch = pack([chain(Random(0), 3)], CRITIC_PROMPT)
    if why == "PyTorch's threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    idents: set[int] = set()

    def read(part: Batch) -> Forward:
        idents.add(get_ident())
        return model(part)

    with allowing(count):
        ours = forward_in_threads(read, batch, budget)
        assert idents == {get_ident()}
    assert (ours.logp_T - forward_parts(model, batch, budget).logp_T).abs().max() <= 1e-6
    monkeypatch.undo()
    monkeypatch.setattr(threads, "WORTH", 1)
    with allowing(2):
        forward_in_threads(read, several(), 10_000)
    assert len(idents) == 2, "others do take two"


def test_within_a_pass_there_are_no_further_threads() -> None:
    """There might be none left, and each would wait for the other."""
    batch, model, within = several(), actor_critic("llama"), []

    def read(part: Batch) -> Forward:
        within.append(allowed())
        return model(part)

    forward_in_threads(read, batch, len(batch))
    assert within == [1, 1] and allowed() == 2


@pytest.mark.parametrize("late", [False, True])
def test_where_memory_runs_out_the_passes_are_smaller(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the forward or, late, in the backward pass of one of the threads."""
    batch, model = several(), actor_critic("llama")
    truth, grads = learned(backward, model, batch)
    budget, real = TokenBudget(len(batch)), torch.autograd.grad
    failed: list[int] = []

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, part: Batch) -> Forward:
            if not late and not failed:
                failed.append(1)
                raise MemoryError
            return self.model(part)

    def grad(*args: object, **options: object) -> object:
        if late and not failed:
            failed.append(1)
            raise MemoryError
        return real(*args, **options)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    model.zero_grad()
    loss = backward_in_threads(Small(), batch, coupled(batch), budget)
    mine = [p.grad for p in model.parameters() if p.grad is not None]
    assert failed and budget.halved and (loss.total - truth).abs() <= 1e-5 and relative(mine, grads) <= 1e-5


def test_an_error_of_a_thread_is_raised_here() -> None:
    def broken(part: Batch) -> Forward:
        raise ModelError("this model is broken")

    with pytest.raises(ModelError, match="is broken"):
        forward_in_threads(broken, several(), 10_000)


@pytest.mark.parametrize(("kind", "many"), [("default", True), ("dynamic", False), ("longrope", False)])
def test_a_model_that_a_pass_changes_is_for_one_thread(kind: str, many: bool) -> None:
    model = actor_critic("llama")
    model.attention = Attention.COMPILED
    next(m for m in model.modules() if hasattr(m, "rope_type")).rope_type = kind
    assert model.many_at_once == many
    model.register_parameter("quantised", torch.nn.Parameter(torch.zeros(1, dtype=torch.int8), requires_grad=False))
    assert not model.many_at_once
    del model.quantised
    model.attention = Attention.BLOCKS
    assert not model.many_at_once
