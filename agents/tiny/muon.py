"""Muon, the optimizer of the tiny model's matrices (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/).

The step of `torch.optim.Muon` with its defaults, but for one thing: that one rounds to bfloat16 before it multiplies,
which processors without such instructions do one number at a time. Here everything is float32.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


def orthogonal(matrix: Tensor) -> Tensor:
    """About U Vᵀ of matrix = U S Vᵀ, by five rounds of a Newton-Schulz iteration: singular values come near 1."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(1e-7)
    for _ in range(_ROUNDS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.T if tall else x


class Muon(Optimizer):
    """Nesterov momentum, of which every step takes `orthogonal`; for parameters of two dimensions."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step down the gradients of all parameters, every one of which must have one."""
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                mean = state.setdefault("momentum", torch.zeros_like(param))
                mean.lerp_(param.grad, 1 - group["momentum"])
                update = orthogonal(param.grad.lerp(mean, group["momentum"]))
                rows, columns = param.shape
                param.add_(update, alpha=-group["lr"] * max(1, rows / columns) ** 0.5)
