"""Linear layers with LoRA and gated MLPs of them in C against the same in float64, forwards and backwards."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from changed_c import changed
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import silu
from tree_cases import CRITIC_PROMPT, trees, wake

from agents.compiled import adapted
from agents.compiled.adapted import Adapted, fits
from agents.compiled.threads import allowing, in_threads
from agents.model import compiled_linear
from agents.model.actor_critic import ActorCritic
from agents.model.attention import onednn_linear
from agents.model.attention.onednn_linear import WideLinear, widen
from agents.model.settings import Attention, LoraSettings
from agents.tree.packing import pack
from benchmarks.variants import base_model

CLOSE = 1e-5
"""In float32, as the exactness protocol has it."""


@pytest.fixture(autouse=True)
def wherever(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors that do not gain by it, too, and for few rows."""
    for module in (adapted, compiled_linear):
        monkeypatch.setattr(module, "pays", lambda: True)
    monkeypatch.setattr(onednn_linear, "usable", lambda: False)
    monkeypatch.setattr(adapted, "ROWS", 1)


@dataclass(frozen=True)
class Case:
    """A layer from ``wide`` to ``inner`` features, or an MLP of that inner width."""

    mlp: bool
    rows: int
    wide: int
    inner: int
    ranks: int
    bias: bool = True
    for_x: bool = True


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(features: int, out: int, case: Case, seed: int) -> Adapted:
    weight, A, B = (drawn(*shape, seed=seed) for shape in ((out, features), (case.ranks, features), (out, case.ranks)))
    bias = drawn(out, seed=seed + 1) if case.bias else None
    return Adapted(weight / features**0.5, bias, A / features**0.5, B / max(1, case.ranks) ** 0.5, 0.7)


def layers_of(case: Case) -> list[Adapted]:
    shapes = [(case.wide, case.inner)] * 2 + [(case.inner, case.wide)] if case.mlp else [(case.wide, case.inner)]
    return [layer(*shape, case, 10 * number) for number, shape in enumerate(shapes)]


def cast(one: Adapted, kind: torch.dtype) -> Adapted:
    return Adapted(*(part.to(kind) if isinstance(part, Tensor) else part for part in one))


def plain(x: Tensor, one: Adapted) -> Tensor:
    return nn.functional.linear(x, one.weight_OI + one.scale * one.B_OR @ one.A_RI, one.bias_O)


def outcome(case: Case, ours: bool) -> list[Tensor]:
    """What comes out, and the gradients of what goes in, where it is wanted, and of every A and B."""
    kind = torch.float32 if ours else torch.float64
    x = drawn(case.rows, case.wide, seed=5).to(kind).requires_grad_(case.for_x)
    made = [
        Adapted(*(part if isinstance(part, float) or part is None else part.to(kind) for part in one))
        for one in layers_of(case)
    ]
    learned = [part.requires_grad_() for one in made for part in (one.A_RI, one.B_OR)] + [x] * case.for_x
    if ours:
        assert fits(x, *made)
        out = compiled_linear.gated_mlp(x, *made) if case.mlp else compiled_linear.applied(x, made[0])
    else:
        out = plain(silu(plain(x, made[0])) * plain(x, made[1]), made[2]) if case.mlp else plain(x, made[0])
    weights = drawn(*out.shape, seed=6).to(kind)
    return [out.detach(), *torch.autograd.grad(out, learned, weights)] if learned else [out]


def furthest(case: Case) -> float:
    """The largest difference from float64, relative to the largest number."""
    pairs = zip(outcome(case, True), outcome(case, False), strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs if b.numel())


@settings(max_examples=80, deadline=None)
@given(
    case=st.builds(
        Case,
        mlp=st.booleans(),
        rows=st.integers(1, 150),
        wide=st.integers(1, 6).map(lambda n: 16 * n),
        inner=st.integers(1, 20).map(lambda n: 16 * n),
        ranks=st.integers(1, 20),
        bias=st.booleans(),
        for_x=st.booleans(),
    )
)
def test_c_equals_float64(case: Case) -> None:
    assert furthest(case) <= CLOSE


@pytest.mark.parametrize("mlp", [False, True])
def test_in_threads_nothing_changes_but_last_bits(mlp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case, at_once = Case(mlp, 700, 32, 48, 5), []
    monkeypatch.setattr(adapted, "in_threads", lambda calls: (at_once.append(len(calls)), in_threads(calls))[1])
    alone = outcome(case, True)
    with allowing(2):
        assert furthest(case) <= CLOSE
        both = outcome(case, True)
    assert at_once == [1, 1, 2, 2, 2, 2]
    assert torch.equal(alone[0], both[0]) and torch.equal(alone[-1], both[-1]), "what comes out, and what goes back"
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(alone, both, strict=True))


def test_a_layer_without_lora() -> None:
    for rows in (1, 50):
        assert furthest(Case(False, rows, 32, 48, 0)) <= CLOSE


ONE = Case(False, 60, 32, 48, 5)
MLP = replace(ONE, mlp=True)


@pytest.mark.parametrize(
    ("case", "right", "wrong"),
    [
        (ONE, "panel[j * PANEL + k] = w->weight[(o + k) * I + j]", "panel[j * PANEL + k] = w->weight[o * I + j]"),
        (ONE, "scaled[r * O + o] = w->scale * w->B", "scaled[r * O + o] = w->B"),
        (ONE, "b.scaled[o * S + r] = w->scale * w->B", "b.scaled[o * S + r] = w->B"),
        (ONE, "= w->scale * b->by_B", "= b->by_B"),
        (ONE, "memcpy(out + i * w->O, w->bias", "memcpy(out + i * w->O, w->weight"),
        (MLP, "back(b + 1, 1, m, slope", "back(b + 1, 0, m, slope"),
        (MLP, "back(b, 0, m, inner, here, to)", "back(b, 0, m, slope, here, to)"),
    ],
)
def test_c_that_is_wrong_would_be_noticed(
    case: Case, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert furthest(case) <= CLOSE
    monkeypatch.setattr(adapted, "SOURCE", changed(adapted.SOURCE, right, wrong, tmp_path))
    assert furthest(case) > 1e-3


def test_where_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    x, (one,) = torch.zeros(70, 32), layers_of(replace(ONE, bias=False))
    one = cast(one, torch.float32)
    assert fits(x, one)
    assert not fits(x.double(), one)
    odd = one._replace(weight_OI=one.weight_OI[:40])
    assert not fits(x, odd) and not fits(x, one, odd)
    monkeypatch.setattr(adapted, "ROWS", 71)
    assert not fits(x, one)
    monkeypatch.setattr(adapted, "ROWS", 70)
    monkeypatch.setattr(adapted, "NUMBERS", one.weight_OI.numel() - 1)
    assert not fits(x, one)
    monkeypatch.undo()
    monkeypatch.setattr(adapted, "pays", lambda: False)
    assert not fits(x, one)


def test_only_on_processors_of_which_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for width, maker, gains in (
        ("AVX2", "AuthenticAMD", True),
        ("AVX2", "GenuineIntel", False),
        ("AVX512", "AuthenticAMD", False),
        ("DEFAULT", "", False),
    ):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda width=width: width)
        monkeypatch.setattr(adapted, "maker", lambda maker=maker: maker)
        assert adapted.pays.__wrapped__() is gains


def test_what_goes_into_down_is_not_kept() -> None:
    made = [
        Adapted(*(p.float() if isinstance(p, Tensor) else p for p in one))
        for one in layers_of(replace(MLP, bias=False))
    ]
    saved: list[torch.Size] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        compiled_linear.gated_mlp(torch.zeros(60, 32, requires_grad=True), *made)
    assert sorted(shape for shape in saved if shape[0] == 60) == [(60, 32), (60, 48), (60, 48)]


# -- in a model -------------------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    seen: list[str] = []
    for name in ("forward", "backward", "mlp", "mlp_backward"):
        real = getattr(adapted, name)
        monkeypatch.setattr(adapted, name, lambda *a, n=name, f=real: (seen.append(n), f(*a))[1])
    yield seen


def actor_critic(attention: Attention, **options: bool) -> ActorCritic:
    base = base_model("0.5M", vocabulary=96)
    widen(base)
    model = ActorCritic(base, LoraSettings(rank=4), attention=attention, **options)
    wake(model)
    return model


def passed(model: ActorCritic) -> list[Tensor]:
    """A pass over trees, and the gradients of what is trained."""
    found = model(pack(trees("several"), CRITIC_PROMPT))
    assert found.value_S is not None
    (found.logp_T.sum() + found.value_S.square().sum()).backward()
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return [found.logp_T.detach(), found.entropy_T, found.value_S.detach(), *grads]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_model_takes_both_ways_to_the_same_numbers(checkpointing: bool, calls: list[str]) -> None:
    model = actor_critic(Attention.COMPILED, checkpointing=checkpointing)
    calls.clear()
    ours = passed(model)
    # Queries, keys, values and output of two layers, and the head, which is not checkpointed.
    again = 2 if checkpointing else 1
    assert [calls.count(n) for n in ("forward", "backward", "mlp", "mlp_backward")] == [8 * again + 1, 9, 2 * again, 2]
    calls.clear()
    truth = passed(actor_critic(Attention.BLOCKS, checkpointing=checkpointing))
    assert not calls, "blocks switches it off"
    assert len(ours) == len(truth) > 20
    assert all((a - b).abs().max() <= CLOSE * max(1.0, float(b.abs().max())) for a, b in zip(ours, truth, strict=True))


def test_without_the_adapter_the_base_is_computed(calls: list[str]) -> None:
    batch = pack(trees("several"), CRITIC_PROMPT)
    model = actor_critic(Attention.COMPILED)
    calls.clear()
    ours = model.reference(batch)
    assert calls == ["forward"] * 15
    assert torch.allclose(ours, actor_critic(Attention.BLOCKS).reference(batch), atol=CLOSE)


def test_layers_that_are_trained_or_packed_are_not_taken(calls: list[str]) -> None:
    net = nn.Sequential(nn.Linear(32, 48))
    widen(net)
    one, x = net[0], torch.ones(70, 32, requires_grad=True)
    assert isinstance(one, WideLinear)
    one.compiled = True
    one(x)
    assert not calls, "it is trained"
    one.requires_grad_(False)
    one(x).sum().backward()
    assert calls == ["forward", "backward"]
    assert torch.allclose(x.grad, one.weight.sum(0).expand(70, 32), atol=1e-5)
    widen(net, packs=True)
    one(x)
    assert calls == ["forward", "backward"]
