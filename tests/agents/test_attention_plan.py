"""The plan of calls against dense attention under the tree mask, and what it costs."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from tree_cases import grow, root, some

import agents.model.attention.blocks
import agents.model.attention.near
from agents.model.attention.blocks import AttentionPlan, Call, TreePlan
from agents.model.attention.interface import tree_attention
from agents.model.attention.kernels import anywhere
from agents.model.attention.mask import additive, tree_mask
from agents.text.errors import ModelError
from agents.tree import Batch, Kind, Node
from agents.tree.packing import pack

MOST = 3000
"""Tokens after which trees of long nodes grow no further: dense attention over many more takes seconds."""


def random_trees(seed: int, longest: int) -> Batch:
    """A few random trees with nodes of up to ``longest`` tokens, with or without critic prompts."""
    rng, nodes = random.Random(seed), 0

    def expand(state: Node, depth: int) -> None:
        nonlocal nodes
        for _ in range(rng.choice([1, 1, 2, 3]) if depth and nodes * longest < MOST else 0):
            nodes += 2
            action = state.add(Node(Kind.ACTION, some(rng, 1, longest)))
            expand(action.add(Node(Kind.STATE, some(rng, 0, longest))), depth - 1)

    roots = [Node(Kind.STATE, some(rng, 1, longest)) for _ in range(rng.randint(1, 4))]
    for start in roots:
        expand(start, rng.randint(0, 4))
    return pack(roots, rng.choice([None, (), (1, 2, 3)]))


class Layer(torch.nn.Module):
    is_causal = True


def attend(
    batch: Batch, window: int | None, *, by_chains: bool = True, repeats: int = 2, device_free: bool = False
) -> tuple[list, list]:
    """(output and gradients of the plan, the same of dense attention), float64, both with depth-first rows."""
    generator = torch.Generator().manual_seed(0)

    def heads(count: int) -> torch.Tensor:
        x = torch.randn(1, count, len(batch), 6, generator=generator, dtype=torch.float64)
        return x.requires_grad_()

    q, k, v = heads(2 * repeats), heads(2), heads(2)
    plan = TreePlan(batch.pos_T, batch.end_T, by_chains=by_chains)
    laid = [x if plan.order_T is None else x.index_select(2, plan.order_T) for x in (q, k, v)]
    if device_free:
        rows = [x[0].transpose(0, 1) for x in laid]
        ours = anywhere(*rows, plan.get(window, torch.float64), 0.7)[None]  # type: ignore[call-arg]
    else:
        ours, _ = tree_attention(Layer(), *laid, None, scaling=0.7, sliding_window=window, tree_plan=plan)  # type: ignore[call-arg]
    ours = ours if plan.place_T is None else ours.index_select(1, plan.place_T)
    mask = tree_mask(batch.end_T, pos_T=batch.pos_T, window=window)
    dense = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.7, enable_gqa=True).transpose(1, 2)
    weight = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    return [ours, *torch.autograd.grad(ours, (q, k, v), weight)], [
        dense,
        *torch.autograd.grad(dense, (q, k, v), weight),
    ]


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    longest=st.sampled_from([3, 20, 90]),
    window=st.sampled_from([None, 1, 3, 5, 40]),
    by_chains=st.booleans(),
    repeats=st.sampled_from([1, 2, 3]),
    device_free=st.booleans(),
    call=st.sampled_from([0, 3000, 10**6]),
    least_open=st.sampled_from([1, 500, agents.model.attention.blocks.LEAST_OPEN]),
)
def test_plan_equals_dense_attention(
    seed: int,
    longest: int,
    window: int | None,
    by_chains: bool,
    repeats: int,
    device_free: bool,
    call: int,
    least_open: int,
) -> None:
    batch, blocks = random_trees(seed, longest), agents.model.attention.blocks
    before = blocks.CALL, blocks.LEAST_OPEN
    # So that pieces of every size, calls shared by many chains and keys without a mask come up.
    blocks.CALL, blocks.LEAST_OPEN = call, least_open
    try:
        ours, dense = attend(batch, window, by_chains=by_chains, repeats=repeats, device_free=device_free)
    finally:
        blocks.CALL, blocks.LEAST_OPEN = before
    for a, b in zip(ours, dense, strict=True):
        assert (a - b).abs().max() <= 1e-12


@pytest.mark.parametrize("broken", ["the parent of another row", "a root that sees more than there is"])
def test_a_wrong_key_of_a_short_window_is_noticed(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_trees(3, 20)
    right, wrong = attend(batch, 3, repeats=1)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(right, wrong, strict=True))
    if broken == "the parent of another row":
        found = agents.model.attention.near.parents(batch.pos_T.numpy())
        monkeypatch.setattr(agents.model.attention.near, "parents", lambda pos: found.clip(0) // 2)
    else:
        plan = agents.model.attention.near.plan_near
        open_plan = lambda *a: replace(made := plan(*a), mask_TW=torch.zeros_like(made.mask_TW))  # noqa: E731
        monkeypatch.setattr(agents.model.attention.blocks, "plan_near", open_plan)
    ours, dense = attend(batch, 3, repeats=1)
    assert not torch.allclose(ours[0], dense[0], atol=0.01)


def test_the_row_above() -> None:
    batch = random_trees(3, 20)
    seen = tree_mask(batch.end_T).numpy()
    above = [max((k for k in range(q) if seen[q, k]), default=-1) for q in range(len(batch))]
    assert agents.model.attention.near.parents(batch.pos_T.numpy()).tolist() == above


def test_a_key_too_few_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison, with the shared mask shifted by one row."""
    batch = random_trees(3, 20)
    masks = AttentionPlan.masks
    monkeypatch.setattr(AttentionPlan, "masks", lambda self, repeats: [m.roll(1, 0) for m in masks(self, repeats)])
    ours, dense = attend(batch, None)
    assert max(float((a - b).detach().abs().max()) for a, b in zip(ours, dense, strict=True)) > 0.1


def episode(turns: int, prompt: int = 60, action: int = 40, observation: int = 60) -> Node:
    rng = random.Random(1)
    start = state = Node(Kind.STATE, some(rng, prompt))
    for _ in range(turns):
        state = state.add(Node(Kind.ACTION, some(rng, action))).add(Node(Kind.STATE, some(rng, observation)))
    return start


def test_plan_equals_dense_attention_on_a_long_chain() -> None:
    """Past 512 keys the kernel works in blocks. Masks stay far smaller than T x T."""
    batch = pack([episode(4, 300, 100, 200)], (1, 2, 3, 4))
    calls = TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(None, torch.float64).calls
    storages = {call.mask_QK.untyped_storage().data_ptr(): call.mask_QK.untyped_storage().size() for call in calls}
    assert sum(storages.values()) / 8 < 0.2 * len(batch) ** 2
    for a, b in zip(*attend(batch, None), strict=True):
        assert (a - b).abs().max() <= 1e-12


def test_keys_that_all_see_need_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither along the trunk nor under critic prompts; a mask that is left out where a key is hidden is noticed."""
    batch = pack([episode(20)], (1,) * 16)
    monkeypatch.setattr(agents.model.attention.blocks, "LEAST_OPEN", 1 << 40)
    with_masks = pairs_of(TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(None, torch.float64).calls)
    monkeypatch.setattr(agents.model.attention.blocks, "LEAST_OPEN", 1 << 12)
    calls = TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(None, torch.float64).calls
    opened = [call for call in calls if call.open_keys]
    assert len(opened) > 0.8 * len(calls) and pairs_of(calls) < 0.3 * with_masks
    for a, b in zip(*attend(batch, None), strict=True):
        assert (a - b).abs().max() <= 1e-12
    parts = Call.parts
    monkeypatch.setattr(Call, "parts", lambda self, mask: tuple((keys, None) for keys, _ in parts(self, mask)))
    ours, dense = attend(batch, None)
    assert float((ours[0] - dense[0]).detach().abs().max()) > 0.1


def test_laid_out_by_chains_an_episode_copies_no_key_of_its_trunk() -> None:
    batch = pack([episode(8)], (1,) * 16)
    calls = TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(None, torch.float32).calls
    trunk = [call for call in calls if call.keys[0].start == 0 and len(call.keys) == 1]
    assert sum(span.stop - span.start for call in trunk for span in call.queries) == 60 + 8 * 100 + 16
    assert all(len(call.queries) == 1 for call in calls)
    # What the critic prompts need: their own keys, and the trunk above.
    assert pairs_of(calls) <= 1.25 * sum(range(60 + 8 * 100)) + 1.3 * sum(16 * (60 + 100 * t + 16) for t in range(9))


def test_a_plan_needs_nothing_but_one_order() -> None:
    """A chain is laid out as it is; anything else is laid out so that places and rows are inverse."""
    chain = pack([episode(3)])
    assert TreePlan(chain.pos_T, chain.end_T, by_chains=True).order_T is None
    tree = random_trees(3, 6)
    plan = TreePlan(tree.pos_T, tree.end_T, by_chains=True)
    assert plan.order_T is not None and plan.place_T is not None
    assert torch.equal(plan.order_T[plan.place_T], torch.arange(len(tree)))
    assert TreePlan(tree.pos_T, tree.end_T).order_T is None


def pairs_of(calls: Sequence[Call]) -> int:
    return sum(call.mask_QK.numel() for call in calls)


def test_the_main_workload_makes_no_big_call() -> None:
    """32 episodes of about 300 tokens in one row: less than the squares of the single episodes, a few calls each."""
    rng = random.Random(0)
    roots = []
    for _ in range(32):
        start = Node(Kind.STATE, some(rng, 40, 80))
        state = start
        for _ in range(rng.randint(4, 6)):
            state = state.add(Node(Kind.ACTION, some(rng, 10, 20))).add(Node(Kind.STATE, some(rng, 20, 50)))
        roots.append(start)
    prompt = some(rng, 6)
    batch = pack(roots, prompt)
    calls = TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(None, torch.float32).calls
    assert len(calls) <= 7 * len(roots)
    assert pairs_of(calls) <= 0.75 * sum(len(pack([start], prompt)) ** 2 for start in roots)


def test_a_group_does_not_pay_for_its_siblings() -> None:
    """Eight branches of 100 tokens on a prompt of 200: no branch meets the keys of another one."""
    rng = random.Random(0)
    start = Node(Kind.STATE, some(rng, 200))
    for _ in range(8):
        start.add(Node(Kind.ACTION, some(rng, 100))).add(Node(Kind.STATE, ()))
    batch = pack([start])
    calls = TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(None, torch.float32).calls
    assert pairs_of(calls) <= 1.2 * 8 * 100 * 300 + 200 * 200
    assert pairs_of(calls) <= 0.4 * len(batch) ** 2


def test_windows_keep_the_keys_few() -> None:
    rng = random.Random(0)
    start = root(rng)
    grow(rng, start, 60)
    batch = pack([start], (1, 2))
    calls = TreePlan(batch.pos_T, batch.end_T, by_chains=True).get(16, torch.float32).calls
    assert max(call.mask_QK.shape[1] for call in calls) <= 200


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


def test_additive_mask_is_what_eager_attention_needs() -> None:
    mask = torch.tensor([[True, False]])
    assert additive(mask, torch.float32).tolist() == [[0.0, float("-inf")]]


def test_a_window_needs_depths() -> None:
    with pytest.raises(ValueError, match="depth"):
        tree_mask(torch.tensor([1]), window=3)


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
