"""Norms, gates, rotary positions and scores in C against the same in float64, forwards and backwards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_c import changed
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import rms_norm, silu
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from tree_cases import CRITIC_PROMPT, actor_critic, trees

from agents.compiled import layers
from agents.compiled.threads import allowing, in_threads
from agents.model import actor_critic as model_file
from agents.model import lean_layers
from agents.model.lean_layers import turned
from agents.model.token_scores import token_scores
from agents.tree.packing import pack

pytestmark = pytest.mark.usefixtures("one_thread")

CLOSE = 1e-5
"""In float32, as the exactness protocol has it."""


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64)


Part = Callable[[Tensor, int, bool], tuple[Tensor, ...]]
"""(inputs [3, rows, width], rows, whether in C) to what it computes of them."""


def gate(x: Tensor, rows: int, ours: bool) -> tuple[Tensor, ...]:
    return (lean_layers._Swish.apply(3 * x[0], x[1], True) if ours else silu(3 * x[0]) * x[1],)


def norm(x: Tensor, rows: int, ours: bool) -> tuple[Tensor, ...]:
    weight_D = x[2, 0].detach()
    right = lambda: rms_norm(x[0], weight_D.shape, weight_D, 1e-2)  # noqa: E731
    return (lean_layers._Normed.apply(x[0], weight_D, 1e-2, True) if ours else right(),)


def turn(x: Tensor, rows: int, ours: bool) -> tuple[Tensor, ...]:
    """Two heads for the queries and one for the keys, cut out of wider rows as a projection gives them."""
    width = x.shape[-1] // 2 * 2
    x = x[..., :width]
    cos_1TD, sin_1TD = (drawn(1, rows, width, seed=seed).to(x.dtype) for seed in (1, 2))
    query, key = x[:2].transpose(0, 1).contiguous().transpose(0, 1)[None], x[2:][None]
    how = turned if ours else apply_rotary_pos_emb
    return tuple(how(query, key, cos_1TD, sin_1TD))


def score(x: Tensor, rows: int, ours: bool) -> tuple[Tensor, ...]:
    token_N = torch.arange(rows) % x.shape[-1]
    if ours:
        return token_scores(4 * x[0], token_N, compiled=True)
    logp_NV = torch.log_softmax(4 * x[0], -1)
    return logp_NV[range(rows), token_N], -(logp_NV.exp() * logp_NV).sum(-1).detach()


PARTS: dict[str, Part] = {"gate": gate, "norm": norm, "turn": turn, "score": score}


def far(name: str, rows: int, width: int) -> float:
    """The largest difference from float64, of numbers and gradients, each relative to the largest there is."""
    exact = drawn(3, rows, width).requires_grad_()
    rough = exact.detach().float().requires_grad_()
    found, truth = PARTS[name](rough, rows, True), PARTS[name](exact, rows, False)
    pairs = list(zip(found, truth, strict=True))
    weights = [drawn(*b.shape, seed=7) for _, b in pairs]
    for made in (found, truth):
        learned = [(y, w.to(y.dtype)) for y, w in zip(made, weights, strict=True) if y.requires_grad]
        torch.autograd.backward(*map(list, zip(*learned, strict=True)))
    pairs.append((rough.grad, exact.grad))  # type: ignore[arg-type]
    return max(float(((a - b).abs().max() / b.abs().max().clamp_min(1)).detach()) for a, b in pairs if b.numel())


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("name", PARTS)
def test_the_same_bits_in_any_number_of_threads(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(layers, "WORTH", 1)
    monkeypatch.setattr(layers, "in_threads", lambda parts: (calls.append(len(parts)), in_threads(parts))[1])

    def made(threads: int) -> list[Tensor]:
        x = drawn(3, rows, 22).float().requires_grad_()
        with allowing(threads):
            found = PARTS[name](x, rows, True)
            learned = [y for y in found if y.requires_grad]
            torch.autograd.backward(learned, [drawn(*y.shape, seed=7).float() for y in learned])
        return [*found, x.grad]  # type: ignore[list-item]

    alone, most = made(1), max(calls, default=1)
    several = made(3)
    assert (most, max(calls, default=1)) == (1, 1 if rows == 1 and name != "gate" else 3)
    assert all(torch.equal(a, b) for a, b in zip(alone, several, strict=True))


@pytest.mark.parametrize("name", PARTS)
@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 20), width=st.integers(1, 200))
def test_c_equals_float64(name: str, rows: int, width: int) -> None:
    assert far(name, rows, width) <= CLOSE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("gate", "x * sigmoid(x) * some(up", "x * sigmoid(x) + some(up"),
        ("gate", "1.0f + x * (1.0f - s)", "1.0f + x * s"),
        ("norm", "/ D + eps", "/ D"),
        ("norm", "by * by * by", "by * by"),
        ("turn", "high_sine : -low_sine", "high_sine : low_sine"),
        ("turn", "turn(1,", "turn(0,"),  # backwards
        ("score", "total(along) / all_of_it", "total(along)"),
        ("score", "by_logits[token[row]] += by", "by_logits[0] += by"),
    ],
)
def test_c_that_is_wrong_would_be_noticed(
    name: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert far(name, 9, 40) <= CLOSE
    monkeypatch.setattr(layers, "SOURCE", changed(layers.SOURCE, right, wrong, tmp_path))
    assert far(name, 9, 40) > 1e-3


def test_a_large_vocabulary() -> None:
    assert far("score", 3, 150_001) <= CLOSE


def test_large_numbers() -> None:
    """Gates far from 0, and logits of which one is all there is."""
    x = torch.tensor([-1e30, -200.0, -90.0, 90.0, 200.0, 1e30]).requires_grad_()
    ours = lean_layers._Swish.apply(x, torch.ones(6), True)
    (slope,) = torch.autograd.grad(ours.sum(), x)
    assert torch.allclose(ours, silu(x.detach()), atol=1e-6) and torch.allclose(slope, (x > 0).float(), atol=1e-6)
    logits = torch.tensor([[1e4, -torch.inf, 0.0, -1e4]] * 3).requires_grad_()
    logp, entropy = token_scores(logits, torch.tensor([0, 1, 2]), compiled=True)
    assert logp.tolist() == [0.0, -torch.inf, -1e4] and entropy.tolist() == [0.0, 0.0, 0.0]
    (slope,) = torch.autograd.grad(logp[[0, 2]].sum(), logits)
    assert slope.tolist() == [[0.0] * 4, [0.0] * 4, [-1.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("width", [6, 64])
def test_what_is_no_number_is_not_hidden(name: str, width: int) -> None:
    """A run that broke down must not look sound."""
    x = torch.ones(3, 2, width)
    x[:2, 1, 3] = torch.nan
    made = PARTS[name](x.requires_grad_(), 2, True)[0].isnan()
    bad = made.any(-1).flatten(0, -2).any(0) if name == "turn" else made.reshape(2, -1).any(-1)
    assert bad.tolist() == [False, True]


def test_other_rows_and_widths_are_turned_as_before() -> None:
    """Several rows at once, and other types."""
    for shape, kind in (((2, 1, 5, 8), torch.float32), ((1, 1, 5, 8), torch.float64)):
        query, key = drawn(*shape).to(kind), drawn(*shape, seed=1).to(kind)
        cos, sin = (drawn(shape[0], 5, 8, seed=seed).to(kind) for seed in (2, 3))
        ours, right = turned(query, key, cos, sin), apply_rotary_pos_emb(query, key, cos, sin)
        assert all(torch.equal(a, b) for a, b in zip(ours, right, strict=True))


def test_with_more_threads_pytorch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2)
    assert layers.fits(x) and not layers.fits(x.double()) and not layers.fits(x, x.to("meta"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert not layers.fits(x)


def passed(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Tensor]]:
    """A model's pass over trees, and the gradients of what it trains."""
    if not compiled:
        monkeypatch.setattr(model_file.layers, "missing", lambda: "it was asked for")
    model = actor_critic()
    assert model.compiled == compiled
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for weight in model.policy_parameters():
            torch.nn.init.normal_(weight, std=0.05)
    found = model(pack(trees("several"), CRITIC_PROMPT))
    (found.logp_T.sum() + found.value_S.square().sum()).backward()
    return found, [weight.grad for weight in model.policy_parameters() if weight.grad is not None]


def test_a_model_takes_both_ways_to_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: set[str] = set()
    for name in ("gate", "norm", "turn", "score"):
        real = getattr(layers, name)
        monkeypatch.setattr(layers, name, lambda *a, n=name, f=real, **more: (calls.add(n), f(*a, **more))[1])
    with_c, grads = passed(True, monkeypatch)
    assert calls == {"gate", "norm", "turn", "score"}
    calls.clear()
    plain, truth = passed(False, monkeypatch)
    assert not calls
    for name in ("logp_T", "entropy_T", "value_S"):
        assert torch.allclose(getattr(with_c, name), getattr(plain, name), atol=CLOSE)
    assert all((a - b).abs().max() <= CLOSE * max(1.0, float(b.abs().max())) for a, b in zip(grads, truth, strict=True))
