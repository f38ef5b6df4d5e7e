"""Linear layers of which nothing is trained but their LoRA, in C, with gradients: where that pays (`adapted.fits`).

Legend: N rows, I and O features in and out, R rank, F width of the MLP.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from agents.compiled import adapted as compiled
from agents.compiled.adapted import Adapted, fits, pays

__all__ = ["Adapted", "applied", "fits", "gated_mlp", "pays", "without_lora"]


def without_lora(weight_OI: Tensor, bias_O: Tensor | None) -> Adapted:
    """A layer of which nothing is trained: its LoRA has no ranks."""
    O, I = weight_OI.shape  # noqa: E741
    return Adapted(weight_OI, bias_O, weight_OI.new_empty(0, I), weight_OI.new_empty(O, 0), 1.0)


def applied(x_NI: Tensor, adapted: Adapted) -> Tensor:
    """[N, O]: what the layer makes of ``x_NI``."""
    return _Applied.apply(x_NI, *adapted)


def gated_mlp(x_NI: Tensor, gate: Adapted, up: Adapted, down: Adapted) -> Tensor:
    """[N, O]: down(silu(gate(x)) * up(x)). What goes into ``down`` is not kept."""
    return _MLP.apply(x_NI, *gate, *up, *down)


class _Applied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, *adapted: Any) -> Tensor:
        x_NI = x_NI.contiguous()
        ctx.save_for_backward(x_NI if adapted[2].numel() else None, *adapted[:4])
        ctx.scale = adapted[4]
        return compiled.forward(x_NI, Adapted(*adapted))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, None, None, Tensor, Tensor, None]:
        x_NI, *tensors = ctx.saved_tensors
        by_x_NI, by_A, by_B = compiled.backward(
            grad_NO, x_NI, Adapted._make([*tensors, ctx.scale]), ctx.needs_input_grad[0]
        )
        return by_x_NI, None, None, by_A, by_B, None


class _MLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, *parts: Any) -> Tensor:
        x_NI, adapted = x_NI.contiguous(), [Adapted(*parts[i : i + 5]) for i in (0, 5, 10)]
        out_NO, gate_NF, up_NF = compiled.mlp(x_NI, *adapted)
        ctx.save_for_backward(x_NI, gate_NF, up_NF, *(tensor for one in adapted for tensor in one[:4]))
        ctx.scales = [one.scale for one in adapted]
        return out_NO

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, gate_NF, up_NF, *tensors = ctx.saved_tensors
        adapted = [Adapted._make([*tensors[4 * i : 4 * i + 4], scale]) for i, scale in enumerate(ctx.scales)]
        by_x_NI, grads = compiled.mlp_backward(grad_NO, x_NI, gate_NF, up_NF, adapted, ctx.needs_input_grad[0])
        return by_x_NI, *(part for by_A, by_B in grads for part in (None, None, by_A, by_B, None))
