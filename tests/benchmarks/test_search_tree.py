"""Training on a whole search tree in one pass is training on its paths one by one: the same loss, the same gradient."""

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from agents.model.actor_critic import ActorCritic
from agents.tree import Batch, Kind, Node
from agents.tree.packing import pack
from benchmarks import search_tree, variants
from benchmarks.search_tree import Given, apart, chains, one_pass

TIGHT = 1e-5


@pytest.fixture(scope="module")
def model() -> ActorCritic:
    model = variants.actor_critic("2M")
    with torch.no_grad():
        for parameter in model.causal_model.parameters():
            if parameter.dim() > 1 and not parameter.requires_grad:
                parameter.mul_(4)  # until attention matters
    return model


def short(node: Node, n: int = 4) -> None:
    """Tests need no long texts; some siblings are drawn twice."""
    for one in node.walk():
        one.tokens = one.tokens[:n]
        one.logp = one.logp[:n]
        if one.kind is Kind.ACTION:
            one.count = 1 + one.tokens[0] % 2


@pytest.fixture(scope="module")
def root() -> Node:
    root = search_tree.search(3, 3, 2, random.Random(1))
    short(root)
    return root


def packed(root: Node, model: ActorCritic) -> tuple[Batch, list[Batch], Tensor]:
    """The tree, its paths and its values; the policy has moved since it was sampled."""
    batches = [pack([one], variants.CRITIC_PROMPT) for one in (root, *chains(root))]
    with torch.no_grad():
        out = [model(batch) for batch in batches]
    moved = [
        replace(batch, old_logp_T=one.logp_T + 0.08 * (batch.token_T % 3 - 1.0) * (batch.action_T >= 0))
        for batch, one in zip(batches, out, strict=True)
    ]
    assert out[0].value_S is not None
    return moved[0], moved[1:], out[0].value_S


def gradient(model: ActorCritic) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def test_one_pass_is_its_paths_one_by_one(model: ActorCritic, root: Node) -> None:
    tree, paths, value_S = packed(root, model)
    given = Given.of(tree, value_S)
    assert len(paths) == tree.leaf_L.numel() == 3 + 6 + 6 - 2 - 2
    assert {len(p) for p in given.actions} == {1, 2, 3} and (tree.count_A > 1).any()
    whole = one_pass(model, tree)
    ours = gradient(model)
    parts = apart(model, paths, given)
    theirs = gradient(model)
    assert abs(float(whole - parts)) <= TIGHT and distance(ours, theirs) <= TIGHT
    # The controls: what is shared counted in every path; targets of the path alone; siblings that count once.
    shared = replace(given, weight_A=given.weight_A * 2, weight_S=given.weight_S * 2)
    once = Given.of(replace(tree, count_A=torch.ones_like(tree.count_A)), value_S)
    for wrong in (shared, once, replace(given, target_MS=given.target_MS + 0.1)):
        apart(model, paths, wrong)
        assert distance(gradient(model), ours) > 0.05


def test_the_targets_of_the_paths_alone_are_others(model: ActorCritic, root: Node) -> None:
    """The mean over all that was tried in a state is not what followed on one path."""
    tree, paths, value_S = packed(root, model)
    given = Given.of(tree, value_S)
    differs = [
        float((search_tree.ALGORITHM.targets(path, value_S[states].double()) - given.target_MS[:, states]).abs().max())
        for path, states in zip(paths, given.states, strict=True)
    ]
    assert max(differs) > 0.1


def test_values_of_the_paths_are_those_of_the_tree(model: ActorCritic, root: Node) -> None:
    tree, paths, value_S = packed(root, model)
    states = Given.of(tree, value_S).states
    assert distance(search_tree.values_apart(model, tree, paths, states), value_S) <= TIGHT
