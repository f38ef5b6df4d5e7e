"""FlashAttention over gathered keys against dense attention under the tree mask.

The package's kernel runs on GPUs only. Everywhere else its rule stands in for it, written out as its documentation has
it: query i of a sequence of n queries and m keys sees the keys from i + m - n - left to i + m - n.
"""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attention_plan import Layer, random_trees
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from tree_cases import CRITIC_PROMPT, actor_critic, base, trees

from agents.model.attention import backends, varlen
from agents.model.attention.backends import check, choose
from agents.model.attention.interface import tree_attention
from agents.model.attention.mask import tree_mask
from agents.model.attention.varlen import PACKAGE, VarlenPlan
from agents.model.settings import Attention
from agents.text.errors import ModelError
from agents.tree import Batch
from agents.tree.packing import pack

WINDOWS = (None, 1, 7, 200)


def rule(from_the_end: bool = True) -> Callable[..., Tensor]:
    """The kernel's rule; False aligns the mask with the first key, as other kernels do."""

    def attend(
        q: Tensor, k: Tensor, v: Tensor, q_edges: Tensor, k_edges: Tensor, most_q: int, most_k: int, *,
        softmax_scale: float | None, causal: bool, window_size: tuple[int, int],
    ) -> Tensor:  # fmt: skip
        assert causal and window_size in ((-1, -1), (window_size[0], 0))
        parts = []
        for a, b, c, d in zip(q_edges, q_edges[1:], k_edges, k_edges[1:], strict=False):
            n, m = int(b - a), int(d - c)
            assert 0 < n <= most_q and n <= m <= most_k
            last = torch.arange(n)[:, None] + (m - n if from_the_end else 0)
            seen = torch.arange(m) <= last
            if window_size[0] >= 0:
                seen &= torch.arange(m) >= last - window_size[0]
            heads = (x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d]))
            out = scaled_dot_product_attention(*heads, attn_mask=seen, scale=softmax_scale, enable_gqa=True)
            parts.append(out[0].transpose(0, 1))
        return torch.cat(parts)

    return attend


def difference(
    batch: Batch, plan: VarlenPlan, window: int | None, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> float:
    """The largest difference to dense attention, of outputs and gradients, both with depth-first rows."""
    generator = torch.Generator().manual_seed(0)

    def heads(count: int) -> Tensor:
        x = torch.randn(1, count, len(batch), 16, generator=generator, dtype=torch.float64)
        return x.to(device, dtype).requires_grad_()

    q, k, v = heads(4), heads(2), heads(2)
    assert plan.order_T is not None and plan.place_T is not None
    laid = [x.index_select(2, plan.order_T) for x in (q, k, v)]
    ours, _ = tree_attention(Layer(), *laid, None, scaling=0.3, sliding_window=window, tree_plan=plan)  # type: ignore[call-arg]
    ours = ours.index_select(1, plan.place_T)
    mask = tree_mask(batch.end_T, pos_T=batch.pos_T, window=window).to(device)
    dense = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    weight = torch.randn(dense.shape, generator=generator, dtype=torch.float64).to(device, dtype)
    pairs = zip(*(torch.autograd.grad((out * weight).sum(), (q, k, v)) for out in (ours, dense)), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in ((ours, dense), *pairs))


@pytest.fixture
def written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "kernel", rule)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), longest=st.sampled_from([3, 40]), window=st.sampled_from(WINDOWS))
def test_outputs_and_gradients_are_those_of_dense_attention(seed: int, longest: int, window: int | None) -> None:
    batch = random_trees(seed, longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen, "kernel", rule)
        assert difference(batch, VarlenPlan(batch.pos_T, batch.end_T, "cpu"), window) <= 1e-10


def test_a_wrong_gathering_is_noticed(written_out: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controls: a window of one less, a key of another row, and a mask aligned with the first key."""
    batch = random_trees(5, 40)

    def plan() -> VarlenPlan:
        return VarlenPlan(batch.pos_T, batch.end_T, "cpu")

    wrong = plan()
    wrong._sequences[7] = wrong.sequences(8)
    assert difference(batch, wrong, 7) <= 1e-10, "one more key outside the window is masked by the kernel"
    narrow = plan()
    narrow._sequences[7] = narrow.sequences(6)
    assert difference(batch, narrow, 7) > 1e-3
    spoilt, right = plan(), plan().sequences(None)
    key_K = right.key_K.clone()
    key_K[0] = key_K[1]
    spoilt._sequences[None] = replace(right, key_K=key_K)
    assert difference(batch, spoilt, None) > 1e-3
    monkeypatch.setattr(varlen, "kernel", lambda: rule(from_the_end=False))
    assert difference(batch, plan(), None) > 1e-3


def test_a_window_gathers_no_more_than_it_shows() -> None:
    batch = pack(trees("group"), CRITIC_PROMPT)
    plan = VarlenPlan(batch.pos_T, batch.end_T, "cpu")
    whole, few = plan.sequences(None), plan.sequences(3)
    chains = whole.first_query_N1.numel() - 1
    assert int(whole.first_query_N1[-1]) == len(batch) < whole.key_K.numel()
    assert few.key_K.numel() <= len(batch) + 2 * chains < whole.key_K.numel()


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_model_reads_the_same_from_it(family: str, written_out: None) -> None:
    model, batch = actor_critic(family), pack(trees("several"), CRITIC_PROMPT)
    ours = model.read(model.hidden(batch, VarlenPlan(batch.pos_T, batch.end_T, "cpu")), batch)
    blocks = model(batch)
    assert ours.value_S is not None and blocks.value_S is not None
    assert (ours.logp_T - blocks.logp_T).abs().max() <= 1e-5
    assert (ours.value_S - blocks.value_S).abs().max() <= 1e-5


def test_it_is_refused_where_it_cannot_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    with pytest.raises(ModelError, match="--attention varlen: FlashAttention trains on CUDA only"):
        check(Attention.VARLEN, torch.device("cpu"))
    monkeypatch.setattr(backends, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match="the package flash_attn, which is not installed; set --attention blocks"):
        check(Attention.VARLEN, cuda)
    monkeypatch.setattr(backends, "find_spec", lambda name: name)
    check(Attention.VARLEN, cuda)

    class OnCuda:
        device, dtype = cuda, torch.float32
        config = base("llama").config

    model: Any = OnCuda()
    with pytest.raises(ModelError, match="in bfloat16 or float16, not in float32"):
        choose(Attention.VARLEN, model)
    model.dtype = torch.bfloat16
    assert choose(Attention.VARLEN, model) == (Attention.VARLEN, "as set")
    model.config.head_dim = 320
    with pytest.raises(ModelError, match="heads of 320 are wider"):
        choose(Attention.VARLEN, model)
    assert choose(Attention.AUTO, model)[0] is Attention.FLEX, "it is never taken unasked"


@pytest.mark.skipif(not (torch.cuda.is_available() and find_spec(PACKAGE)), reason="needs a GPU and flash-attn")
@pytest.mark.parametrize("window", WINDOWS)
def test_the_real_kernel_keeps_the_rule(window: int | None) -> None:
    batch = random_trees(5, 90)
    plan = VarlenPlan(batch.pos_T, batch.end_T, "cuda")
    assert difference(batch, plan, window, "cuda", torch.bfloat16) <= 0.06
