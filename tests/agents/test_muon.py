"""The tiny model's optimizer takes the steps of PyTorch's, which multiplies in bfloat16, as near as that rounds."""

import pytest
import torch
from torch import Tensor, nn

from agents.tiny.muon import Muon, orthogonal

ROUNDING = 0.01
"""Relative; bfloat16 has eight bits."""


def way(optimizer: type[torch.optim.Optimizer], shape: tuple[int, int], **settings: float) -> Tensor:
    """How far twenty steps move a matrix; the gradients are always the same."""
    draw = torch.Generator().manual_seed(0)
    matrix = nn.Parameter(torch.randn(shape, generator=draw))
    start, steps = matrix.detach().clone(), optimizer([matrix], lr=0.02, **settings)
    for _ in range(20):
        matrix.grad = torch.randn(shape, generator=draw)
        steps.step()
    return matrix.detach() - start


def apart(one: Tensor, other: Tensor) -> float:
    return ((one - other).norm() / other.norm()).item()


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48)])
def test_it_goes_where_pytorchs_goes(shape: tuple[int, int]) -> None:
    wanted = way(torch.optim.Muon, shape, weight_decay=0.0)
    assert apart(way(Muon, shape), wanted) < ROUNDING
    assert apart(way(Muon, shape, momentum=0.9), wanted) > 10 * ROUNDING, "the check must be able to fail"


def test_singular_values_come_near_one() -> None:
    draw = torch.Generator().manual_seed(0)
    matrix = torch.randn(48, 16, generator=draw) * torch.logspace(-1, 1, 16)
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(orthogonal(matrix))
    assert before.max() / before.min() > 50
    assert after.min() > 0.6 and after.max() < 1.3
