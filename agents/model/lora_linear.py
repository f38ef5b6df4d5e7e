"""LoRA layers in one product, where PEFT takes five operations on every token, and more in the backward pass.

Invariant: the numbers and gradients of PEFT's own layer up to rounding. W + scale * B A is made anew in each pass,
which costs little beside many tokens, and is not kept. The engine multiplies with the same sum where it merges.

Legend: N rows, I and O features in and out, R rank.
"""

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from agents.model.attention.onednn_linear import WideLinear, pays, times, usable


class OnePassLinear(Linear):
    """PEFT's LoRA layer, in one product where that is the same and pays; else as PEFT computes it."""

    def forward(self, x: Tensor, *args: Any, **keywords: Any) -> Tensor:
        base, active = self.get_base_layer(), [name for name in self.active_adapters if name in self.lora_A]
        plain = not (args or keywords or self.disable_adapters or self.merged or self.lora_variant)
        if not plain or len(active) != 1 or type(base) not in (nn.Linear, WideLinear):
            return super().forward(x, *args, **keywords)
        matrix_A, matrix_B, scale = self.lora_A[active[0]], self.lora_B[active[0]], self.scaling[active[0]]
        if not _pays(x, base.weight) or matrix_B.bias is not None or self.lora_dropout[active[0]].training:
            return super().forward(x)
        if {matrix_A.weight.dtype, matrix_B.weight.dtype, x.dtype} != {base.weight.dtype} or base.weight.requires_grad:
            return super().forward(x)
        x_NI = x.reshape(-1, x.shape[-1])
        out_NO = _Adapted.apply(x_NI, base.weight, base.bias, matrix_A.weight, matrix_B.weight, scale)
        return out_NO.view(*x.shape[:-1], out_NO.shape[-1])


def in_one_pass(model: nn.Module) -> None:
    """Has every LoRA layer of ``model`` that is PEFT's plain one do so. Weights stay as they are."""
    for layer in model.modules():
        if type(layer) is Linear:
            layer.__class__ = OnePassLinear


def _pays(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether the sum of the weights costs less than the operations on rows that it saves, and rounds to float32."""
    return x.numel() // x.shape[-1] >= min(weight_OI.shape) and weight_OI.dtype in (torch.float32, torch.float64)


class _Adapted(torch.autograd.Function):
    """x (W + scale * B A)^T + bias, for a frozen W and bias."""

    @staticmethod
    def forward(
        ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, A_RI: Tensor, B_OR: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI, A_RI, B_OR)
        ctx.scale = scale
        return _product(x_NI, torch.addmm(weight_OI, B_OR, A_RI, alpha=scale), bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, None, None, Tensor | None, Tensor | None, None]:
        x_NI, weight_OI, A_RI, B_OR = ctx.saved_tensors
        for_x, _, _, for_A, for_B, _ = ctx.needs_input_grad
        grad_x = grad_A = grad_B = None
        if for_x:
            grad_x = _product(grad_NO, torch.addmm(weight_OI, B_OR, A_RI, alpha=ctx.scale).t())
        if for_A:
            grad_A = ctx.scale * ((grad_NO @ B_OR).t() @ x_NI)
        if for_B:
            grad_B = ctx.scale * (grad_NO.t() @ (x_NI @ A_RI.t()))
        return grad_x, None, None, grad_A, grad_B, None


def _product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + bias by whichever library multiplies `WideLinear`."""
    return times(x_NI, weight_OI, bias_O) if usable() and pays(x_NI, weight_OI) else linear(x_NI, weight_OI, bias_O)
