"""Where oneDNN gains nothing, packed layers multiply by copies that lie column by column."""

import copy

import pytest
import torch
from engine_cases import engine_of, model
from peft import LoraConfig
from torch import Tensor, nn

from agents.model.attention.onednn_linear import WideLinear, by_columns, widen

pytestmark = pytest.mark.usefixtures("by_mkl")


def pair() -> tuple[nn.Linear, WideLinear]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = nn.Linear(96, 160)
    wide = nn.Sequential(copy.deepcopy(plain))
    widen(wide, packs=True)
    assert isinstance(wide[0], WideLinear)
    return plain, wide[0]


def some(rows: int = 21) -> Tensor:
    return torch.randn(rows, 96, generator=torch.Generator().manual_seed(0))


def test_without_gradient_a_copy_is_multiplied() -> None:
    plain, wide = pair()
    x = some()
    for scale in (1.0, 2.0):
        with torch.no_grad():
            plain.weight.mul_(scale)
            wide.weight.mul_(scale)
            assert torch.allclose(wide(x), plain(x), atol=1e-5)
        assert wide._packed is not None and wide._packed[1].stride() == (1, 160)
    with torch.no_grad():
        wide._packed = (wide.weight._version + 1, wide._packed[1])
        wide.weight.mul_(2)  # now of the version that the stale copy claims
        plain.weight.mul_(2)
        assert not torch.allclose(wide(x), plain(x), atol=1e-2), "the test would notice"


def test_with_gradient_the_weights_themselves_are() -> None:
    plain, wide = pair()
    out = wide(some())
    assert torch.equal(out, plain(some()))
    out.sum().backward()
    assert wide._packed is None and wide.weight.grad is not None


def test_what_lies_so_already_is_not_copied() -> None:
    plain, wide = pair()
    wide.weight = nn.Parameter(by_columns(wide.weight.detach()), requires_grad=False)
    with torch.no_grad():
        assert torch.allclose(wide(some()), plain(some()), atol=1e-5)
    assert wide._packed is None


def test_merged_weights_of_a_small_engine_lie_so() -> None:
    engine = engine_of(model("mistral"), lora=LoraConfig(r=2, target_modules=["q_proj"]))
    layer = engine.model.model.layers[0].self_attn
    assert layer.q_proj.weight.stride(0) == 1
    assert layer.k_proj.weight.stride(1) == 1


def test_models_on_other_layers_are_left_alone() -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    widen(net)
    assert type(net[0]) is nn.Linear
