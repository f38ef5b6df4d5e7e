"""Attention in C against dense attention under the tree mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attention_plan import Layer, random_trees
from torch.nn.functional import scaled_dot_product_attention
from tree_cases import CRITIC_PROMPT, base, trees

from agents.compiled import tree_attention
from agents.compiled.threads import allowing
from agents.model.attention import compiled
from agents.model.attention.backends import check, choose
from agents.model.attention.blocks import TreePlan
from agents.model.attention.compiled import CompiledPlan
from agents.model.attention.interface import tree_attention as attention
from agents.model.attention.mask import tree_mask
from agents.model.settings import Attention
from agents.text.errors import ModelError
from agents.tree import Batch
from agents.tree.packing import pack

CLOSE = 1e-5
"""In float32, as the exactness protocol has it."""


def attend(
    batch: Batch, window: int | None = None, *, by_chains: bool = True, repeats: int = 2, width: int = 6, heads: int = 2
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(output and gradients in C, the same of dense attention in float64), both with depth-first rows."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    exact = [drawn(1, count, len(batch), width).requires_grad_() for count in (heads * repeats, heads, heads)]
    plan = CompiledPlan(batch.pos_T, batch.end_T, by_chains=by_chains)
    rough = [x.detach().float().requires_grad_() for x in exact]
    laid = [x if plan.order_T is None else x.index_select(2, plan.order_T) for x in rough]
    ours, _ = attention(Layer(), *laid, None, scaling=0.7, sliding_window=window, tree_plan=plan)  # type: ignore[call-arg]
    ours = ours if plan.place_T is None else ours.index_select(1, plan.place_T)
    mask = tree_mask(batch.end_T, pos_T=batch.pos_T, window=window)
    dense = scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.7, enable_gqa=True).transpose(1, 2)
    weight = drawn(*ours.shape)
    return [ours, *torch.autograd.grad(ours, rough, weight.float())], [
        dense,
        *torch.autograd.grad(dense, exact, weight),
    ]


def apart(ours: list[torch.Tensor], dense: list[torch.Tensor]) -> float:
    """The largest difference: of the output, and of the gradients relative to their largest entry."""
    far = [float((a - b).detach().abs().max()) for a, b in zip(ours, dense, strict=True)]
    sizes = [float(b.detach().abs().max()) for b in dense]
    return max(far[0] / sizes[0], max(far[1:]) / max(sizes[1:]))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    longest=st.sampled_from([3, 20, 60]),
    window=st.sampled_from([None, 1, 3, 5, 40]),
    by_chains=st.booleans(),
    repeats=st.sampled_from([1, 2, 3, 7]),
    width=st.sampled_from([1, 6, 16, 33, 64]),
    threads=st.sampled_from([1, 2, 3]),
)
def test_c_equals_dense_attention(
    seed: int, longest: int, window: int | None, by_chains: bool, repeats: int, width: int, threads: int
) -> None:
    batch, before, worth = random_trees(seed, longest), torch.get_num_threads(), tree_attention.WORTH
    torch.set_num_threads(threads)
    tree_attention.WORTH = 1
    try:
        ours, dense = attend(batch, window, by_chains=by_chains, repeats=repeats, width=width)
    finally:
        torch.set_num_threads(before)
        tree_attention.WORTH = worth
    assert all(x.dtype == torch.float32 for x in ours)
    assert apart(ours, dense) <= CLOSE


@pytest.mark.parametrize("wrong", ["keys a place further", "a window more", "one key too many above"])
def test_a_wrong_key_is_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_trees(3, 20)
    assert apart(*attend(batch, 9)) <= CLOSE
    made = compiled.stretches
    if wrong == "keys a place further":
        further = lambda path: (path + 1) % len(batch)  # noqa: E731
        monkeypatch.setattr(compiled, "stretches", lambda chains, paths: made(chains, [further(p) for p in paths]))
    elif wrong == "one key too many above":
        longer = lambda path: path[[0, *range(path.size)]]  # noqa: E731
        monkeypatch.setattr(compiled, "stretches", lambda chains, paths: made(chains, [longer(p) for p in paths]))
    else:
        called = tree_attention.forward
        monkeypatch.setattr(tree_attention, "forward", lambda q, k, v, seen, w, s: called(q, k, v, seen, w + 1, s))
    assert apart(*attend(batch, None if wrong == "one key too many above" else 9)) > 1e-3


def test_parts_of_whole_heads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_trees(4, 60)
    alone, _ = attend(batch, None, heads=4)
    monkeypatch.setattr(tree_attention, "WORTH", 1)
    for threads, same in ((2, True), (3, False), (4, True)):
        with allowing(threads):
            at_once, _ = attend(batch, None, heads=4)
        assert all(torch.equal(a, b) for a, b in zip(alone, at_once, strict=True)) is same
        assert apart(at_once, alone) <= CLOSE


def test_a_token_with_more_rows_than_a_block() -> None:
    assert apart(*attend(random_trees(4, 9), repeats=25, heads=1)) <= CLOSE


def test_large_scores_and_unlikely_keys() -> None:
    """A weight too small for a number is 0, the largest score may be anything, and gradients stay finite."""
    batch = pack(trees("several"), CRITIC_PROMPT)
    plan = CompiledPlan(batch.pos_T, batch.end_T)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(len(batch), 2, 16, generator=generator) for _ in range(3))
    q, k, v = (x.requires_grad_() for x in (30 * q, 30 * k, v))
    ours = plan.attend(q, k, v, None, 1.0)
    exact = TreePlan(batch.pos_T, batch.end_T).attend(q.double(), k.double(), v.double(), None, 1.0)
    grads, truth = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (ours, exact))
    # Scores near 10,000 are rounded to a thousandth, and so are the weights; most weights are 0.
    for a, b in zip([ours, *grads], [exact, *truth], strict=True):
        assert torch.isfinite(a).all() and (a - b).abs().max() <= 3e-3 * b.abs().max()


def test_what_lies_between_numbers_does_not_matter() -> None:
    """Heads cut out of wider rows, numbers that do not follow one another, and a gradient that is one number."""
    batch = random_trees(5, 20)
    plan = CompiledPlan(batch.pos_T, batch.end_T)
    wide = torch.randn(len(batch), 3, 8, 2, generator=torch.Generator().manual_seed(1))
    cut = [wide[:, i : i + 1, :, 0].detach() for i in range(3)]
    plain = [x.contiguous().requires_grad_() for x in cut]
    strange = [x.requires_grad_() for x in cut]
    assert strange[0].stride(-1) == 2
    for q, k, v in (plain, strange):
        plan.attend(q, k, v, None, None).sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain, strange, strict=True))


@pytest.mark.parametrize("which", [0, 1, 2], ids=["query", "key", "value"])
def test_what_is_no_number_is_not_hidden(which: int) -> None:
    """It reaches all rows that see it: a run that broke down must not look sound. A value may reach more: 0 * NaN."""
    batch = pack(trees("forks"))
    plan = CompiledPlan(batch.pos_T, batch.end_T)
    inputs = [torch.ones(len(batch), 1, 16) for _ in range(3)]
    inputs[which][7] = torch.nan
    got = plan.attend(inputs[0], inputs[1], inputs[2], None, None).isnan().all(-1)[:, 0]
    readers = torch.arange(len(batch)) == 7 if which == 0 else tree_mask(batch.end_T)[:, 7]
    assert got[readers].all() and (which == 2 or not got[~readers].any())


def test_the_same_row_gives_the_same_bits() -> None:
    batch = random_trees(7, 90)
    first, again = (attend(batch, width=64)[0] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_what_c_cannot_compute_is_computed_as_before() -> None:
    batch = pack(trees("forks"))
    plan, blocks = CompiledPlan(batch.pos_T, batch.end_T), TreePlan(batch.pos_T, batch.end_T)
    q, k, v = (torch.randn(len(batch), 2, 8, dtype=torch.float64) for _ in range(3))
    assert torch.equal(plan.attend(q, k, v, None, None), blocks.attend(q, k, v, None, None))
    q, k, v = q.float(), k.float(), torch.randn(len(batch), 2, 4)
    assert torch.equal(plan.attend(q, k, v, None, None), blocks.attend(q, k, v, None, None))


def test_a_model_in_bfloat16_or_on_a_gpu_is_refused() -> None:
    with pytest.raises(ModelError, match="compiled kernels compute in float32, not in bfloat16"):
        choose(Attention.COMPILED, base().bfloat16())
    assert choose(Attention.AUTO, base().bfloat16()) == (
        Attention.BLOCKS,
        "since compiled kernels compute in float32, not in bfloat16",
    )
    with pytest.raises(ModelError, match="compiled kernels run on a CPU, and the model is on cuda"):
        check(Attention.COMPILED, torch.device("cuda"))
