"""Wide linear layers give what plain ones give, forwards and backwards."""

import copy

import pytest
import torch
from engine_cases import engine_of, largest_error, model, play, sessions
from torch import nn

from agents.engine import body
from agents.model.attention import onednn_linear as linear
from agents.model.attention.onednn_linear import WideLinear, rounded, widen

pytestmark = pytest.mark.skipif(not linear.able(), reason="this machine has no wider instructions")


@pytest.fixture(autouse=True)
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on processors that do not gain by it."""
    monkeypatch.setattr(linear, "usable", linear.able)


REAL = linear.usable
SHAPES = [(1, 40, 24), (77, 96, 160), (64, 128, 128), (129, 128, 384), (1000, 256, 40)]


def pair(i: int, o: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, nn.Module]:
    monkeypatch.setattr(linear, "WORTH", 0)
    with torch.random.fork_rng():
        torch.manual_seed(i)
        plain = nn.Sequential(nn.Linear(i, o, bias=bias))
    wide = copy.deepcopy(plain)
    widen(wide)
    assert type(wide[0]) is WideLinear and type(plain[0]) is nn.Linear
    return plain, wide


def off(mine: torch.Tensor | None, truth: torch.Tensor | None) -> float:
    """Largest difference relative to the largest entry."""
    assert mine is not None and truth is not None
    return float(((mine - truth).abs().max() / truth.abs().max()).detach())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("n", "i", "o"), SHAPES)
def test_values_and_gradients(n: int, i: int, o: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wide = pair(i, o, bias, monkeypatch)
    generator = torch.Generator().manual_seed(n)
    data = torch.randn(1, n, i, generator=generator)
    back = torch.randn(1, n, o, generator=generator)
    found = []
    for module in (plain, wide):
        x = data.clone().requires_grad_()
        y = module(x)
        y.backward(back)
        found.append([y.detach(), x.grad, *(p.grad for p in module.parameters())])
    for truth, mine in zip(*found, strict=True):
        assert off(mine, truth) <= 1e-5
    with torch.inference_mode():
        assert off(wide(data), found[0][0]) <= 1e-5


@pytest.mark.parametrize("inference", [False, True])
def test_packed_weights_follow_every_change(inference: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wide = pair(96, 160, True, monkeypatch)
    widen(wide, packs=True)
    x = torch.randn(21, 96, generator=torch.Generator().manual_seed(0))
    for scale in (1.0, 2.0):
        with torch.inference_mode(inference), torch.no_grad():
            for module in (plain, wide):
                module[0].weight.mul_(scale)
            assert off(wide(x), plain(x)) <= 1e-5
    assert wide[0]._packed is not None
    twin = copy.deepcopy(wide)
    with torch.no_grad():
        assert off(twin(x), plain(x)) <= 1e-5
        monkeypatch.setattr(wide[0], "_packed", (wide[0].weight._version + 1, wide[0]._packed[1]))
        wide[0].weight.mul_(2)  # now of the version that the stale copy claims
        plain[0].weight.mul_(2)
        assert off(wide(x), plain(x)) > 0.1, "the test would notice"


def test_the_test_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wide = pair(96, 160, False, monkeypatch)
    times = linear._times
    monkeypatch.setattr(linear, "_times", lambda *a: times(*a).bfloat16().float())
    x = torch.randn(77, 96, generator=torch.Generator().manual_seed(0))
    assert off(wide(x), plain(x)) > 1e-4


def test_frozen_weights_keep_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    _, wide = pair(96, 160, False, monkeypatch)
    wide.requires_grad_(False)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        wide(torch.zeros(80, 96, requires_grad=True))
    assert saved == [(160, 96)]


def test_other_types_take_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, wide = pair(96, 160, True, monkeypatch)
    monkeypatch.setattr(linear, "_times", None)
    x = torch.randn(77, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(wide.double()(x), plain.double()(x))


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_an_engine_on_wide_layers_equals_a_plain_forward(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "WORTH", 0)
    monkeypatch.setattr(body, "usable", linear.able)
    reference = model(family)
    engine = engine_of(reference)
    assert engine._body is not None
    assert any(type(module) is WideLinear for module in engine.model.modules())
    assert not any(type(module) is WideLinear for module in reference.modules())
    todo = sessions(12)
    play(engine, todo, delay=2)
    assert largest_error(reference, todo) <= 1e-5


def test_not_on_processors_that_mkl_was_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for maker, gains in (("vendor_id\t: GenuineIntel", False), ("vendor_id\t: AuthenticAMD", True), ("", True)):
        monkeypatch.setattr(linear, "maker", lambda maker=maker: maker)
        assert REAL.__wrapped__() is gains


def test_rows_are_rounded_to_few_numbers() -> None:
    for rows in range(1, 5000):
        assert rows <= rounded(rows) <= max(rows + 7, rows * 1.15)
    assert len({rounded(rows) for rows in range(1, 16385)}) < 100
