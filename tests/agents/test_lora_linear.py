"""LoRA layers in one product give what PEFT's own give, forwards and backwards, and leave to PEFT what is PEFT's."""

import copy
from typing import cast

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn

from agents.model import lora_linear
from agents.model.attention import onednn_linear
from agents.model.attention.onednn_linear import WideLinear
from agents.model.lora import multiply_in_base_type
from agents.model.lora_linear import OnePassLinear, in_one_pass


class Net(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(24, 40, bias=bias), nn.Linear(40, 16, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.relu(self.one(x)))


def adapted(bias: bool = True, wide: bool = False, **settings: object) -> PeftModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net(bias)
        if wide:
            net.one.__class__ = net.two.__class__ = WideLinear
        made = get_peft_model(net, LoraConfig(r=4, lora_alpha=12, target_modules=["one", "two"], **settings)).eval()
        for name, weight in made.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(weight, std=0.3)
    return made


def pair(**settings: object) -> tuple[PeftModel, PeftModel]:
    plain = adapted(**settings)  # type: ignore[arg-type]
    mine = copy.deepcopy(plain)
    in_one_pass(mine)
    return plain, mine


def numbers(made: PeftModel, rows: int) -> list[Tensor]:
    """What comes out, and the gradients of what goes in and of both matrices of every layer."""
    generator = torch.Generator().manual_seed(1)
    weight = next(made.parameters())
    x = torch.randn(1, rows, 24, generator=generator, dtype=weight.dtype).requires_grad_()
    y = made(x)
    y.backward(torch.randn(y.shape, generator=generator, dtype=y.dtype))
    assert x.grad is not None
    grads = [p.grad for p in made.parameters() if p.grad is not None]
    assert len(grads) == 4
    return [y.detach(), x.grad, *grads]


def off(mine: list[Tensor], truth: list[Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(mine, truth, strict=True))


@pytest.mark.parametrize("rows", [3, 70, 200])  # few, many forward or backward only, many
def test_numbers_and_gradients(rows: int) -> None:
    for bias in (True, False):
        plain, mine = pair(bias=bias)
        assert type(mine.one) is OnePassLinear
        assert off(numbers(mine, rows), numbers(plain, rows)) <= 1e-5
    exact, also = (made.double() for made in pair())
    assert off(numbers(also, rows), numbers(exact, rows)) <= 1e-14


@pytest.mark.parametrize("rows", [3, 200])
def test_in_bfloat16_it_rounds_less_than_peft(rows: int) -> None:
    """Where many rows would take the sum of the weights in float32, too: it would be rounded to 8 bits."""
    plain = adapted()
    for name, weight in plain.named_parameters():
        weight.data = weight.data.bfloat16() if "lora_" not in name else weight.data.bfloat16().float()
    multiply_in_base_type(plain)
    mine = copy.deepcopy(plain)
    in_one_pass(mine)
    x = torch.randn(rows, 24, generator=torch.Generator().manual_seed(1)).bfloat16()
    layers = [cast(Linear, net.get_submodule("base_model.model.one")) for net in (plain, mine)]
    base, A, B = (layers[0].get_submodule(n) for n in ("base_layer", "lora_A.default", "lora_B.default"))
    A_RI, B_OR, weight_OI, bias_O = (p.detach().double() for p in (A.weight, B.weight, base.weight, base.bias))
    exact = x.double() @ (weight_OI + 3 * B_OR @ A_RI).t() + bias_O
    theirs, ours = (layer(x) for layer in layers)
    assert ours.dtype == torch.bfloat16 and type(layers[1]) is OnePassLinear
    assert (ours - exact).abs().mean() < (theirs - exact).abs().mean() < 0.02
    own = [layers[1].lora_A["default"].weight, layers[1].lora_B["default"].weight]
    grads = torch.autograd.grad(ours.sum(), own)
    wanted = torch.autograd.grad(theirs.sum(), [A.weight, B.weight])
    assert all(g.dtype == torch.float32 and off([g], [w]) <= 0.02 for g, w in zip(grads, wanted, strict=True))


@pytest.mark.skipif(not onednn_linear.able(), reason="this machine has no wider instructions")
def test_on_wide_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn_linear, "WORTH", 0)
    monkeypatch.setattr(lora_linear, "usable", lambda: True)
    plain, mine = pair(wide=True)
    assert off(numbers(mine, 70), numbers(plain, 70)) <= 1e-5


def test_the_test_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, mine = pair()
    product = lora_linear._product
    monkeypatch.setattr(lora_linear, "_product", lambda *a: product(*a) * 1.001)
    assert off(numbers(mine, 70), numbers(plain, 70)) > 1e-4


def test_the_sum_of_the_weights_is_not_kept() -> None:
    _, mine = pair()
    saved: list[torch.Size] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        mine.one(torch.zeros(70, 24, requires_grad=True))
    assert saved == [(70, 24), (40, 24), (4, 24), (40, 4)]


def test_what_is_not_plain_is_left_to_peft() -> None:
    x = torch.randn(70, 24, generator=torch.Generator().manual_seed(2))
    for settings in ({"use_dora": True}, {"lora_bias": True}):
        plain, mine = pair(**settings)
        assert torch.equal(plain(x), mine(x))
    plain, mine = pair()
    with plain.disable_adapter(), mine.disable_adapter():
        assert torch.equal(plain(x), mine(x))
    for made in (plain, mine):
        made.merge_adapter()
    assert torch.equal(plain(x), mine(x))
    plain, mine = pair()
    for made in (plain, mine):
        made.one.get_base_layer().bias.requires_grad_()
        made.one(x).sum().backward()
    assert torch.equal(plain.one.get_base_layer().bias.grad, mine.one.get_base_layer().bias.grad)
    half, other = (made.bfloat16() for made in pair())
    assert torch.equal(half(x.bfloat16()), other(x.bfloat16()))
