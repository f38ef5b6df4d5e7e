"""The block plan against dense attention under the tree mask, and what it costs."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from tree_cases import grow, root, some

import agents.plan
from agents.attention import tree_attention
from agents.errors import ModelError
from agents.mask import additive, flex_mask_mod, tree_mask
from agents.packing import pack
from agents.plan import TreePlan
from agents.tree import Batch, Kind, Node


def random_trees(seed: int, longest: int) -> Batch:
    """A few random trees with nodes of up to ``longest`` tokens, with or without critic prompts."""
    rng = random.Random(seed)

    def expand(state: Node, depth: int) -> None:
        for _ in range(rng.choice([1, 1, 2, 3]) if depth else 0):
            action = state.add(Node(Kind.ACTION, some(rng, 1, longest)))
            expand(action.add(Node(Kind.STATE, some(rng, 0, longest))), depth - 1)

    roots = [Node(Kind.STATE, some(rng, 1, longest)) for _ in range(rng.randint(1, 4))]
    for start in roots:
        expand(start, rng.randint(0, 4))
    return pack(roots, rng.choice([(), (1, 2, 3)]))


class Layer(torch.nn.Module):
    is_causal = True


def attend(batch: Batch, window: int | None, plan: TreePlan | None = None) -> tuple[list, list]:
    """(output and gradients of the plan, the same of dense attention), float64, two query heads a key head."""
    generator = torch.Generator().manual_seed(0)

    def heads(count: int) -> torch.Tensor:
        x = torch.randn(1, count, len(batch), 6, generator=generator, dtype=torch.float64)
        return x.requires_grad_()

    q, k, v = heads(4), heads(2), heads(2)
    plan = plan or TreePlan(batch.pos_T, batch.end_T)
    ours, _ = tree_attention(Layer(), q, k, v, None, scaling=0.7, sliding_window=window, tree_plan=plan)
    mask = tree_mask(batch.end_T, pos_T=batch.pos_T, window=window)
    dense = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.7, enable_gqa=True).transpose(1, 2)
    weight = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    return [ours, *torch.autograd.grad(ours, (q, k, v), weight)], [
        dense,
        *torch.autograd.grad(dense, (q, k, v), weight),
    ]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    longest=st.sampled_from([3, 20, 90]),
    window=st.sampled_from([None, 1, 5, 40]),
    long=st.sampled_from([40, 1024]),
)
def test_plan_equals_dense_attention(seed: int, longest: int, window: int | None, long: int) -> None:
    batch = random_trees(seed, longest)
    before = agents.plan.LONG
    agents.plan.LONG = long  # so that causal calls come up without episodes of thousands of tokens
    try:
        ours, dense = attend(batch, window)
    finally:
        agents.plan.LONG = before
    for a, b in zip(ours, dense, strict=True):
        assert (a - b).abs().max() <= 1e-12


def test_plan_equals_dense_attention_on_a_long_chain() -> None:
    """Past 1024 tokens the trunk is one causal call without a mask; past 512 keys the kernel works in blocks."""
    rng = random.Random(1)
    start = Node(Kind.STATE, some(rng, 300))
    state = start
    for _ in range(4):
        state = state.add(Node(Kind.ACTION, some(rng, 100))).add(Node(Kind.STATE, some(rng, 200)))
    batch = pack([start], (1, 2, 3, 4))
    calls = TreePlan(batch.pos_T, batch.end_T).get(None, torch.float64).calls
    assert [call.mask_B1QK is None for call in calls].count(True) == 1
    assert sum(call.mask_B1QK.numel() for call in calls if call.mask_B1QK is not None) < 0.02 * len(batch) ** 2
    for a, b in zip(*attend(batch, None), strict=True):
        assert (a - b).abs().max() <= 1e-12


def test_the_main_workload_needs_few_calls_and_no_big_mask() -> None:
    """32 episodes of about 300 tokens in one row: about half of the squares of the single episodes, in few calls."""
    rng = random.Random(0)
    roots = []
    for _ in range(32):
        start = Node(Kind.STATE, some(rng, 40, 80))
        state = start
        for _ in range(rng.randint(4, 6)):
            state = state.add(Node(Kind.ACTION, some(rng, 10, 20))).add(Node(Kind.STATE, some(rng, 20, 50)))
        roots.append(start)
    batch = pack(roots, some(rng, 6))
    plan = TreePlan(batch.pos_T, batch.end_T).get(None, torch.float32)
    pairs = sum(call.blocks * call.queries * call.keys for call in plan.calls)
    squares = sum(len(pack([start], (1,) * 6)) ** 2 for start in roots)
    assert len(plan.calls) <= 20
    assert pairs <= 0.75 * squares
    assert plan.key_M.numel() <= 4 * len(batch)


def test_a_group_does_not_pay_for_its_siblings() -> None:
    """Eight branches of 100 tokens on a prompt of 200: no branch meets the keys of another one."""
    rng = random.Random(0)
    start = Node(Kind.STATE, some(rng, 200))
    for _ in range(8):
        start.add(Node(Kind.ACTION, some(rng, 100))).add(Node(Kind.STATE, ()))
    batch = pack([start])
    plan = TreePlan(batch.pos_T, batch.end_T).get(None, torch.float32)
    pairs = sum(call.blocks * call.queries * call.keys for call in plan.calls)
    assert pairs <= 1.2 * 8 * 100 * 300 + 200 * 200
    assert pairs <= 0.4 * len(batch) ** 2


def test_windows_keep_the_keys_few() -> None:
    rng = random.Random(0)
    start = root(rng)
    grow(rng, start, 60)
    batch = pack([start], (1, 2))
    plan = TreePlan(batch.pos_T, batch.end_T).get(16, torch.float32)
    assert max(call.keys for call in plan.calls) <= 2 * agents.plan.BLOCK + 16


# -- the mask itself --------------------------------------------------------------------------------------------------


def test_mask_is_the_rule_of_ancestors() -> None:
    batch = random_trees(3, 6)
    mask = tree_mask(batch.end_T)
    for q in range(len(batch)):
        seen, row = set(), q
        while row >= 0:
            seen.add(row)
            row = int(batch.parent_T[row])
        assert set(torch.nonzero(mask[q]).flatten().tolist()) == seen


def test_flex_mask_equals_the_dense_mask() -> None:
    batch = random_trees(4, 6)
    row = torch.arange(len(batch))
    for window in (None, 3):
        mod = flex_mask_mod(batch.end_T, pos_T=batch.pos_T, window=window)
        ours = mod(torch.tensor(0), torch.tensor(0), row[:, None], row[None, :])
        assert torch.equal(ours, tree_mask(batch.end_T, pos_T=batch.pos_T, window=window))


def test_additive_mask_is_what_eager_attention_needs() -> None:
    mask = torch.tensor([[True, False]])
    assert additive(mask, torch.float32).tolist() == [[0.0, float("-inf")]]


def test_a_window_needs_depths() -> None:
    end_T = torch.tensor([1])
    for build in (tree_mask, flex_mask_mod):
        with pytest.raises(ValueError, match="depth"):
            build(end_T, window=3)


# -- refusals ---------------------------------------------------------------------------------------------------------


def call(**options: object) -> None:
    batch = random_trees(0, 3)
    q, k, v = (torch.randn(1, 2, len(batch), 4) for _ in range(3))
    arguments = {"attention_mask": None, "tree_plan": TreePlan(batch.pos_T, batch.end_T)} | options
    tree_attention(Layer(), q, k, v, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ({"softcap": 30.0}, "softcap"),
        ({"s_aux": torch.zeros(2)}, "s_aux"),
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        ({"something_new": 1}, "something_new"),
        ({"output_attentions": True}, "output_attentions"),
        ({"dropout": 0.1}, "dropout"),
        ({"is_causal": False}, "both directions"),
        ({"attention_mask": torch.ones(1, 5)}, "attention mask"),
        ({"tree_plan": TreePlan(torch.arange(3), torch.full((3,), 3))}, "plan of 3 tokens"),
        ({"tree_plan": None, "attention_mask": torch.empty(1, 1, 0, 0)}, "does not hand the tree plan"),
    ],
)
def test_what_is_not_implemented_is_refused(option: dict, word: str) -> None:
    with pytest.raises(ModelError, match=word):
        call(**option)


def test_keywords_without_effect_are_accepted() -> None:
    call(softcap=None, output_attentions=False, use_cache=False, position_ids=torch.zeros(1), dropout=0.0)
