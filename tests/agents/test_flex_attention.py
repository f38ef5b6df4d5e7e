"""FlexAttention's block mask and its forward against dense attention under the tree mask, on the CPU.

Its backward and its CUDA kernels do not run on a CPU: what is tested here is all that does.
"""

from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attention_plan import Layer, random_trees
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from tree_cases import CRITIC_PROMPT, FAMILIES, actor_critic, base, trees

from agents.model.actor_critic import ActorCritic
from agents.model.attention import backends, flex
from agents.model.attention.backends import check, choose
from agents.model.attention.blocks import TreePlan
from agents.model.attention.compiled import CompiledPlan
from agents.model.attention.flex import BLOCK, FlexPlan, block_mask
from agents.model.attention.flex import padded as padded_length
from agents.model.attention.interface import tree_attention
from agents.model.attention.mask import tree_mask
from agents.model.settings import Attention
from agents.text.errors import ModelError
from agents.tree import Batch
from agents.tree.packing import pack

WINDOWS = (None, 1, 7, 200)


def padded(batch: Batch) -> tuple[Tensor, Tensor]:
    """(pos_P, end_P) as the plan pads them."""
    plan = FlexPlan(batch.pos_T, batch.end_T)
    return plan._pos_P, plan._end_P


def dense_blocks(pos_P: Tensor, end_P: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
    """(blocks of which all is seen, of which something is), from the dense mask."""
    mask = tree_mask(end_P, pos_T=pos_P, window=window)
    blocks = mask.unflatten(1, (-1, BLOCK)).unflatten(0, (-1, BLOCK)).transpose(1, 2).flatten(2)
    return blocks.all(-1), blocks.any(-1)


def listed(count_N: Tensor, which_NN: Tensor) -> Tensor:
    """The bool matrix that two fields of a BlockMask stand for."""
    chosen = torch.zeros(which_NN.shape[-2:], dtype=torch.bool)
    for row, (count, which) in enumerate(zip(count_N[0, 0], which_NN[0, 0], strict=True)):
        chosen[row, which[:count].long()] = True
    return chosen


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), longest=st.sampled_from([3, 40, 150]), window=st.sampled_from(WINDOWS))
def test_the_block_mask_is_that_of_the_dense_mask(seed: int, longest: int, window: int | None) -> None:
    pos_P, end_P = padded(random_trees(seed, longest))
    ours = block_mask(pos_P, end_P, window)
    whole, some = dense_blocks(pos_P, end_P, window)
    assert torch.equal(listed(ours.full_kv_num_blocks, ours.full_kv_indices), whole)
    met = listed(ours.kv_num_blocks, ours.kv_indices) | whole
    assert not (some & ~met).any()
    assert window is not None or torch.equal(met, some)
    assert not (met & ~dense_blocks(pos_P, end_P, None)[1]).any(), "a window only takes blocks away"
    # The transposed lists, by which the backward pass goes, say the same.
    assert torch.equal(listed(ours.full_q_num_blocks, ours.full_q_indices), whole.T)
    assert torch.equal(listed(ours.q_num_blocks, ours.q_indices) | whole.T, met.T)


def test_it_is_what_torch_makes_of_every_pair() -> None:
    """torch's own function evaluates the rule on all pairs of tokens."""
    pos_P, end_P = padded(random_trees(7, 90))
    for window in (None, 40):
        ours, length = block_mask(pos_P, end_P, window), end_P.numel()
        theirs = create_block_mask(ours.mask_mod, None, None, length, length, device="cpu", BLOCK_SIZE=BLOCK)
        met, some = (x.to_dense().bool() for x in (ours, theirs))
        assert torch.equal(met, some) if window is None else not (some & ~met).any()
        full = (listed(x.full_kv_num_blocks, x.full_kv_indices) for x in (ours, theirs))
        assert torch.equal(*full)


def attend(batch: Batch, plan: FlexPlan, window: int | None) -> float:
    """The largest difference to dense attention, through the function that models call."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, len(batch), 16, generator=generator) for heads in (4, 2, 2))
    ours, _ = tree_attention(Layer(), q, k, v, None, scaling=0.3, sliding_window=window, tree_plan=plan)
    mask = tree_mask(batch.end_T, pos_T=batch.pos_T, window=window)
    dense = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    return float((ours - dense).abs().max())


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("seed", "longest"), [(0, 3), (3, 40), (5, 90), (7, 40)])
def test_the_forward_equals_dense_attention(seed: int, longest: int, window: int | None) -> None:
    batch = random_trees(seed, longest)
    assert attend(batch, FlexPlan(batch.pos_T, batch.end_T, compiled=False), window) <= 2e-6


def test_a_wrong_end_is_noticed() -> None:
    """The controls: every token but one keeps its end; then a causal mask; then a window of one token more."""
    batch = random_trees(5, 90)
    leaf = int(torch.nonzero((batch.end_T < len(batch)) & (batch.pos_T > 0))[0])
    longer = batch.end_T.clone()
    longer[leaf] += 1
    assert attend(batch, FlexPlan(batch.pos_T, longer, compiled=False), None) > 1e-3
    causal = torch.full_like(batch.end_T, len(batch))
    assert attend(batch, FlexPlan(batch.pos_T, causal, compiled=False), None) > 0.1
    right, wrong = (FlexPlan(batch.pos_T, batch.end_T, compiled=False) for _ in range(2))
    wrong._masks[7] = right.mask(8)
    assert attend(batch, right, 7) <= 2e-6 < 1e-3 < attend(batch, wrong, 7)
    whole, _ = dense_blocks(*padded(batch), None)
    other = block_mask(*padded(random_trees(6, 90)), None)
    assert not torch.equal(listed(other.full_kv_num_blocks, other.full_kv_indices), whole)


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_reads_the_same_from_both_ways(family: str) -> None:
    """Log-probabilities and values of whole models, sliding windows included."""
    model, batch = actor_critic(family), pack(trees("several"), CRITIC_PROMPT)
    ours = model.read(model.hidden(batch, FlexPlan(batch.pos_T, batch.end_T, compiled=False)), batch)
    blocks = model(batch)
    assert ours.value_S is not None and blocks.value_S is not None
    assert (ours.logp_T - blocks.logp_T).abs().max() <= 1e-5
    assert (ours.value_S - blocks.value_S).abs().max() <= 1e-5


# -- compiling --------------------------------------------------------------------------------------------------------


def test_rows_are_padded_to_whole_blocks() -> None:
    assert [padded_length(n) for n in (1, BLOCK, 2 * BLOCK, 2 * BLOCK + 1, 1000)] == [256, 256, 256, 384, 1024]


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The plan's compiled call with a backend that needs no compiler; what is traced and guarded is the same."""
    traced = torch.compile(flex_attention, dynamic=True, fullgraph=True, backend="eager")
    monkeypatch.setattr(flex, "kernel", lambda: traced)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


FEW = ((1, 30), (2, 30), (6, 30), (5, 30))
MANY = (*FEW, (7, 30), (8, 30), (9, 30), (7, 90))


@pytest.mark.parametrize(("drawn", "least"), [(FEW, 2), pytest.param(MANY, 5, marks=pytest.mark.runs)])
def test_it_compiles_once_for_every_length_and_window(
    compiles: None, drawn: Sequence[tuple[int, int]], least: int
) -> None:
    lengths = set()
    for seed, longest in drawn:
        for window in (None, 7):
            batch = random_trees(seed, longest)
            assert attend(batch, FlexPlan(batch.pos_T, batch.end_T), window) <= 2e-6
            lengths.add(padded_length(len(batch)))
    assert len(lengths) >= least and counters["stats"]["unique_graphs"] == 1


def test_kernels_are_compiled_for_a_state_of_pytorch(compiles: None) -> None:
    """Why a model is probed in the state that it learns in: another one compiles all over again."""
    batch = random_trees(1, 30)
    for on, graphs in ((True, 1), (True, 1), (False, 2), (True, 2)):
        torch.use_deterministic_algorithms(on, warn_only=True)
        try:
            attend(batch, FlexPlan(batch.pos_T, batch.end_T), None)
        finally:
            torch.use_deterministic_algorithms(False)
        assert counters["stats"]["unique_graphs"] == graphs


@pytest.mark.runs
def test_the_compiled_kernel_equals_dense_attention() -> None:
    batch = random_trees(5, 90)
    for window in (None, 40):
        assert attend(batch, FlexPlan(batch.pos_T, batch.end_T), window) <= 2e-6


# -- the door ---------------------------------------------------------------------------------------------------------


def test_auto_takes_compiled_kernels_on_the_cpu_and_says_why() -> None:
    model = actor_critic("llama")
    assert model.attention is Attention.COMPILED
    assert model.how == "since the model is on a CPU in float32, and a C compiler made its kernels"
    batch = pack(trees("group"), CRITIC_PROMPT)
    assert isinstance(model.plan_of(batch), CompiledPlan)
    asked = ActorCritic(base("llama"), attention=Attention.BLOCKS)
    assert asked.how == "as set" and type(asked.plan_of(batch)) is TreePlan
    ours, plain = (m(batch).logp_T for m in (ActorCritic(base("llama")), asked))
    assert 0 < (ours - plain).abs().max() <= 1e-5


def test_flex_is_refused_where_it_cannot_train(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="--attention flex: FlexAttention trains on CUDA only"):
        check(Attention.FLEX, torch.device("cpu"))
    with pytest.raises(ModelError, match=r"--attention flex: .*; set --attention blocks, or leave it out"):
        ActorCritic(base("llama"), attention=Attention.FLEX)
    cuda = torch.device("cuda")
    monkeypatch.setattr(backends, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match="the package triton"):
        check(Attention.FLEX, cuda)
    monkeypatch.setattr(backends, "find_spec", lambda name: name)
    check(Attention.FLEX, cuda)
    check(Attention.AUTO, torch.device("cpu"))


def test_auto_takes_flex_on_cuda_where_heads_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnCuda:
        device = torch.device("cuda")
        config = base("llama").config

    monkeypatch.setattr(backends, "find_spec", lambda name: name)
    narrow = OnCuda()
    assert choose(Attention.AUTO, narrow) == (  # type: ignore[arg-type]
        Attention.BLOCKS,
        "since heads of 8 are narrower than FlexAttention's 16",
    )
    with pytest.raises(ModelError, match="heads of 8"):
        choose(Attention.FLEX, narrow)  # type: ignore[arg-type]
    narrow.config.head_dim = 64
    assert choose(Attention.AUTO, narrow)[0] is Attention.FLEX  # type: ignore[arg-type]
    batch = pack(trees("group"))
    assert isinstance(backends.plan_of(Attention.FLEX, batch, torch.device("cpu")), FlexPlan)
