"""The attention of a row of token trees by C that was compiled for this processor: no masks, and no pair too many.

Invariant: the numbers and gradients of `TreePlan` up to rounding; what the C is not written for, that computes.

Legend: T tokens, H heads, G key heads, D width of a head.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from agents.compiled import tree_attention
from agents.compiled.tree_attention import Stretches, stretches
from agents.model.attention.blocks import TreePlan
from agents.model.attention.chains import paths_of


class CompiledPlan(TreePlan):
    """The plan of one row of trees for every window."""

    @cached_property
    def seen(self) -> Stretches:
        """Which rows see which keys, whatever the window."""
        paths = paths_of(self._chains, self._pos, self._end)
        return stretches([self._place[rows] for rows in self._chains], [self._place[rows] for rows in paths])

    def attend(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, window: int | None, scale: float | None
    ) -> Tensor:
        """[T, H, D]: attention of every row to its ancestors within the window."""
        if not _fits(query_THD, key_TGD, value_TGD):
            return super().attend(query_THD, key_TGD, value_TGD, window, scale)
        scale = query_THD.shape[-1] ** -0.5 if scale is None else scale
        return _Attended.apply(query_THD, key_TGD, value_TGD, self.seen, window, scale)


def _fits(query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor) -> bool:
    """Whether it is float32 on the CPU, with values as wide as keys."""
    here = all(x.dtype == torch.float32 and x.device.type == "cpu" for x in (query_THD, key_TGD, value_TGD))
    return here and key_TGD.shape == value_TGD.shape and query_THD.numel() > 0


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_THD: Tensor,
        key_TGD: Tensor,
        value_TGD: Tensor,
        seen: Stretches,
        window: int | None,
        scale: float,
    ) -> Tensor:
        inputs = [tree_attention.packed(x) for x in (query_THD, key_TGD, value_TGD)]
        out_THD, norm_TH = tree_attention.forward(inputs[0], inputs[1], inputs[2], seen, window, scale)
        ctx.save_for_backward(*inputs, out_THD, norm_TH)
        ctx.how = seen, window, scale
        return out_THD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_THD: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        grads = tree_attention.backward(grad_THD, *ctx.saved_tensors, *ctx.how)
        return *grads, None, None, None
