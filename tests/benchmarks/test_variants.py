"""What the benchmarks of cost compare is equal work: the same numbers, the same gradients, tokens counted right."""

import random

import pytest
import torch

from agents.model.actor_critic import ActorCritic
from agents.tree import Batch
from agents.tree.packing import pack
from benchmarks import variants
from benchmarks.variants import ACTION, OBSERVATION, PROMPT, SHADOW, Way

TIGHT = 1e-5
TURNS = 3
TURN = ACTION + OBSERVATION
CHAIN = PROMPT + TURNS * TURN


@pytest.fixture(scope="module")
def model() -> ActorCritic:
    model = variants.actor_critic("2M")
    with torch.no_grad():
        for parameter in model.causal_model.parameters():
            if parameter.dim() > 1 and not parameter.requires_grad:
                parameter.mul_(4)  # until attention matters
    return model


@pytest.fixture(scope="module")
def tree() -> Batch:
    return pack([variants.episode(TURNS, random.Random(0))], variants.CRITIC_PROMPT)


@pytest.fixture(scope="module")
def chain() -> Batch:
    return pack([variants.episode(TURNS, random.Random(0))])


@pytest.fixture(scope="module")
def group() -> Batch:
    return pack([variants.group(50, [20, 40, 30], random.Random(0))])


def difference(model: ActorCritic, batch: Batch, way: Way, other: Way) -> float:
    """The largest over log-probabilities, values, and gradients relative to their largest entry."""
    found = []
    for each in (way, other):
        model.zero_grad(set_to_none=True)
        out = each(model, batch)
        variants.loss_of(batch, out).backward()
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        assert len(grads) >= len(model.policy_parameters())
        value_S = torch.zeros(1) if out.value_S is None else out.value_S.detach()
        found.append((out.logp_T.detach(), value_S, grads))
    (logp, value, ours), (other_logp, other_value, theirs) = found
    largest = max(float(g.abs().max()) for g in theirs)
    gradient = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / largest
    return max(float((logp - other_logp).abs().max()), float((value - other_value).abs().max()), gradient)


@pytest.mark.parametrize("way", [variants.dense, variants.value_passes, variants.turn_passes])
def test_naive_ways_give_the_numbers_of_the_packed_pass(model: ActorCritic, tree: Batch, way: Way) -> None:
    assert difference(model, tree, way, variants.packed) <= TIGHT


def test_a_plain_causal_pass_gives_the_numbers_of_the_packed_chain(model: ActorCritic, chain: Batch) -> None:
    assert difference(model, chain, variants.causal, variants.packed) <= TIGHT


@pytest.mark.parametrize("way", [variants.padded_rows, variants.separate_rows])
def test_rows_give_the_numbers_of_the_packed_group(model: ActorCritic, group: Batch, way: Way) -> None:
    assert difference(model, group, way, variants.packed) <= TIGHT


def test_a_wrong_mask_is_noticed(model: ActorCritic, tree: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "tree_mask", lambda end_T: torch.ones(len(end_T), len(end_T)).tril().bool())
    assert difference(model, tree, variants.dense, variants.packed) > 0.1


def test_tokens_are_counted_as_the_actor_critic_counts_them(
    model: ActorCritic, tree: Batch, chain: Batch, group: Batch
) -> None:
    for batch in (tree, chain, group):
        before = model.counters.tokens
        assert variants.encoded(variants.packed, model, batch) == model.counters.tokens - before == len(batch)


def test_every_way_encodes_what_it_is_said_to(model: ActorCritic, tree: Batch, chain: Batch, group: Batch) -> None:
    values = sum(PROMPT + t * TURN + SHADOW for t in range(TURNS + 1))
    turns = sum(PROMPT + t * TURN + ACTION for t in range(TURNS))
    expected = [
        (variants.packed, chain, CHAIN),
        (variants.causal, chain, CHAIN),
        (variants.packed, tree, CHAIN + (TURNS + 1) * SHADOW),
        (variants.dense, tree, CHAIN + (TURNS + 1) * SHADOW),
        (variants.value_passes, tree, CHAIN + values),
        (variants.turn_passes, tree, turns + values),
        (variants.packed, group, 50 + 20 + 40 + 30),
        (variants.padded_rows, group, 3 * (50 + 40)),
        (variants.separate_rows, group, 3 * 50 + 20 + 40 + 30),
    ]
    for way, batch, tokens in expected:
        assert variants.encoded(way, model, batch) == tokens, way.__name__
    assert group.raw_tokens == 3 * 50 + 20 + 40 + 30
