"""Linear layers on the processor's widest instructions.

Invariant: the same weights, the same numbers and gradients up to rounding; only who multiplies changes. PyTorch
multiplies float32 matrices with MKL, which on processors of other makers than its own leaves half their width unused;
oneDNN, which PyTorch ships as well, uses all of it. On Intel's own, MKL is the faster of the two, and
beside few rows faster still where the weights lie column by column. oneDNN compiles a kernel for every number of rows
(about a millisecond each), so rows are padded to one of a few numbers.

Legend: N rows, I and O features in and out.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from agents.compiled.processor import maker
from agents.model import compiled_linear

WORTH = 64 * 128 * 128
"""Multiplications below which starting oneDNN costs more than it saves."""


def able() -> bool:
    """Whether this machine has the instructions, and PyTorch the function."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def usable() -> bool:
    """Whether this machine gains by it: it is able to, and MKL was not made for its processor."""
    return able() and "GenuineIntel" not in maker()


def rounded(rows: int) -> int:
    """The next number of rows that kernels are made for: a multiple of 8, and about an eighth more at most."""
    step = max(8, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // step) * step


def pays(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether oneDNN multiplies these faster than MKL does, on a machine where it is usable at all."""
    rows = x.numel() // x.shape[-1]
    return rows * weight_OI.numel() >= WORTH and on_cpu(x, weight_OI)


def on_cpu(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether both are there, in float32."""
    return x.dtype == weight_OI.dtype == torch.float32 and x.device.type == "cpu"


def times(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """[N, O]: x W^T + bias, by oneDNN and without gradient. The weight may be in oneDNN's own order."""
    return _times(_padded(x_NI), weight_OI, bias_O)[: x_NI.shape[0]]


def _padded(x_NI: Tensor) -> Tensor:
    rows = x_NI.shape[0]
    if rounded(rows) == rows:
        return x_NI
    wider = x_NI.new_empty(rounded(rows), x_NI.shape[1])
    wider[:rows].copy_(x_NI)
    wider[rows:].zero_()
    return wider


def _times(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI if weight_OI.requires_grad else None, weight_OI)
        return times(x_NI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_NI, weight_OI = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            times(grad_NO, weight_OI.t()) if for_x else None,
            _times(_padded(grad_NO).t(), _padded(x_NI).t(), None) if for_weight else None,
            grad_NO.sum(0) if for_bias else None,
        )


class WideLinear(nn.Linear):
    """``nn.Linear``, faster on the CPU in float32: for many rows where oneDNN pays, and for few rows where it packs."""

    packs: bool = False
    """Keeps a copy of the weights in the order that is fastest to multiply without gradient: a third faster for few
    rows. It is oneDNN's own order where that pays, and column by column elsewhere."""
    compiled: bool = False
    """Whether C may compute it, where that pays, it is not trained, and no copy of it is packed."""
    _packed: tuple[int, Tensor] | None = None
    """Version of the weights, and the copy that was made of it."""

    def forward(self, x: Tensor) -> Tensor:
        learns = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        if usable() and pays(x, self.weight):
            x_NI = x.reshape(-1, self.in_features)
            if learns:
                out_NO = _Differentiable.apply(x_NI, self.weight, self.bias)
            else:
                out_NO = times(x_NI, self._ordered(), self.bias)
            return out_NO.view(*x.shape[:-1], self.out_features)
        if (out := self._by_c(x)) is not None:
            return out
        plain = learns or usable() or not on_cpu(x, self.weight)
        return linear(x, self.weight if plain else self._ordered(), self.bias)

    def _by_c(self, x: Tensor) -> Tensor | None:
        trained = self.weight.requires_grad or (self.bias is not None and self.bias.requires_grad)
        if trained or self.packs or not self.compiled:
            return None
        x_NI, whole = x.reshape(-1, self.in_features), compiled_linear.without_lora(self.weight, self.bias)
        if not compiled_linear.fits(x_NI, whole):
            return None
        return compiled_linear.applied(x_NI, whole).view(*x.shape[:-1], self.out_features)

    def _ordered(self) -> Tensor:
        weight = self.weight
        # A tensor of inference mode does not tell when it was changed.
        if not self.packs or weight.is_inference() or (weight.stride(0) == 1 and not usable()):
            return weight
        version = weight._version
        if self._packed is None or self._packed[0] != version:
            fast = torch.ops.mkldnn._reorder_linear_weight if usable() else by_columns
            self._packed = version, fast(weight.detach())
        return self._packed[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


def by_columns(weight_OI: Tensor) -> Tensor:
    """The same matrix, laid out column by column: beside few rows MKL multiplies it up to twice as fast."""
    return weight_OI.t().contiguous().t()


def widen(model: nn.Module, *, packs: bool = False) -> None:
    """Makes every plain linear layer of ``model`` a wide one, where this machine gains by it. Weights stay."""
    if usable() or packs or compiled_linear.pays():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = WideLinear
            if isinstance(module, WideLinear):
                module.packs = packs
