"""LoRA layers in one product, where PEFT takes five operations on every token, and more in the backward pass.

Invariant: the numbers and gradients of PEFT's own layer up to rounding. Beside many rows W + scale * B A costs little:
it is made anew in each pass, and not kept. Beside few, and in bfloat16, what the adapter adds is added to the product
in place: by the product itself on a GPU.

Legend: N rows, I and O features in and out, R rank.
"""

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from agents.model import compiled_linear
from agents.model.attention.onednn_linear import WideLinear, pays, times, usable
from agents.model.compiled_linear import Adapted


class OnePassLinear(Linear):
    """PEFT's LoRA layer, in one product where that is the same and pays; else as PEFT computes it."""

    compiled: bool = False
    """Whether C may compute it, where that pays."""

    def forward(self, x: Tensor, *args: Any, **keywords: Any) -> Tensor:
        adapted = None if args or keywords else self.parts(x)
        if adapted is None:
            return super().forward(x, *args, **keywords)
        x_NI = x.reshape(-1, x.shape[-1])
        if self.compiled and compiled_linear.fits(x_NI, adapted):
            out_NO = compiled_linear.applied(x_NI, adapted)
        else:
            out_NO = _Adapted.apply(x_NI, *adapted)
        return out_NO.view(*x.shape[:-1], out_NO.shape[-1])

    def parts(self, x: Tensor) -> Adapted | None:
        """What it is made of, where that is all that it does to ``x``."""
        base, active = self.get_base_layer(), [name for name in self.active_adapters if name in self.lora_A]
        if self.disable_adapters or self.merged or self.lora_variant:
            return None
        if len(active) != 1 or type(base) not in (nn.Linear, WideLinear):
            return None
        matrix_A, matrix_B, scale = self.lora_A[active[0]], self.lora_B[active[0]], self.scaling[active[0]]
        if matrix_B.bias is not None or not isinstance(self.lora_dropout[active[0]], nn.Identity):
            return None
        if base.weight.requires_grad or (base.bias is not None and base.bias.requires_grad):
            return None
        A_RI, B_OR = matrix_A.weight, matrix_B.weight
        if base.weight.dtype == torch.bfloat16 and not self.cast_input_dtype_enabled:  # see ``multiply_in_base_type``
            A_RI, B_OR = A_RI.to(torch.bfloat16), B_OR.to(torch.bfloat16)
        elif base.weight.dtype not in (torch.float32, torch.float64):
            return None
        if {A_RI.dtype, B_OR.dtype, x.dtype} != {base.weight.dtype}:
            return None
        return Adapted(base.weight, base.bias, A_RI, B_OR, scale)


def in_one_pass(model: nn.Module) -> None:
    """Has every LoRA layer of ``model`` that is PEFT's plain one do so. Weights stay as they are."""
    for layer in model.modules():
        if type(layer) is Linear:
            layer.__class__ = OnePassLinear


MANY = 2
"""Times the other side of a matrix that its rows must be, for the sum of the weights to cost less than it saves."""


def _sums(rows: int, width: int, weight_OI: Tensor) -> bool:
    """Whether W + scale * B A is made. Not in bfloat16, which would round the sum to 8 bits."""
    return rows >= MANY * width and weight_OI.dtype != torch.bfloat16


class _Adapted(torch.autograd.Function):
    """x (W + scale * B A)^T + bias, for a frozen W and bias.

    The products with A or B alone have R rows, not R columns: so MKL multiplies them up to three times as fast.
    """

    @staticmethod
    def forward(
        ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, A_RI: Tensor, B_OR: Tensor, scale: float
    ) -> Tensor:
        ctx.scale = scale
        rows, width = x_NI.shape
        if _sums(rows, width, weight_OI):
            ctx.save_for_backward(x_NI, weight_OI, A_RI, B_OR, None)
            return _product(x_NI, torch.addmm(weight_OI, B_OR, A_RI, alpha=scale), bias_O)
        read_RN = A_RI @ x_NI.t()
        ctx.save_for_backward(x_NI, weight_OI, A_RI, B_OR, read_RN)
        return _product(x_NI, weight_OI, bias_O).addmm_(read_RN.t(), B_OR.t(), alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, None, None, Tensor | None, Tensor | None, None]:
        x_NI, weight_OI, A_RI, B_OR, read_RN = ctx.saved_tensors
        for_x, _, _, for_A, for_B, _ = ctx.needs_input_grad
        grad_x = grad_A = grad_B = None
        grad_RN = B_OR.t().contiguous() @ grad_NO.t()
        rows, width = grad_NO.shape
        if for_x and _sums(rows, width, weight_OI):
            grad_x = _product(grad_NO, torch.addmm(weight_OI, B_OR, A_RI, alpha=ctx.scale).t())
        elif for_x:
            grad_x = _product(grad_NO, weight_OI.t()).addmm_(grad_RN.t(), A_RI, alpha=ctx.scale)
        if for_A:
            grad_A = ctx.scale * (grad_RN @ x_NI)
        if for_B:
            if read_RN is None:
                read_RN = A_RI @ x_NI.t()
            grad_B = ctx.scale * (read_RN @ grad_NO).t()
        return grad_x, None, None, grad_A, grad_B, None


def _product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + bias by whichever library multiplies `WideLinear`."""
    return times(x_NI, weight_OI, bias_O) if usable() and pays(x_NI, weight_OI) else linear(x_NI, weight_OI, bias_O)
