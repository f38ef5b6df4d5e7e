"""The calls of a plan, and how they are carried out.

Invariant: both ways give the same numbers and gradients. On a CPU the kernel is called directly, so that keys which
form a slice are never copied, heads that share a key head read and add to the same memory as further queries, and
the gradients of keys that many calls read are added up in place. Anywhere else autograd does it.

Softmax over keys in two parts is the sum of the parts' outputs, each weighed by exp(its log-sum - the whole log-sum);
the kernel's backward pass takes the whole output and log-sum with the keys of a part, and gives that part's gradient.

Legend: T tokens, H heads, G key heads, R heads per key head, D width of a head, Q queries and K keys of a
call, N either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

Spans = tuple[slice, ...]


@dataclass(frozen=True)
class Call:
    """One kernel call. Queries and keys are given by their places in the row."""

    queries: Spans
    keys: Spans
    mask_QK: Tensor
    """0 / -inf."""
    open_keys: Spans = ()
    """Further keys, before the others, that every query sees."""

    def parts(self, mask_QK: Tensor) -> tuple[tuple[Spans, Tensor | None], ...]:
        """(keys, mask) of the kernel calls that it takes."""
        return ((self.open_keys, None), (self.keys, mask_QK)) if self.open_keys else ((self.keys, mask_QK),)


@dataclass(frozen=True)
class AttentionPlan:
    """All calls of a row, for one window."""

    calls: tuple[Call, ...]
    _repeated: dict[int, list[Tensor]] = field(default_factory=dict, repr=False)

    def masks(self, repeats: int) -> list[Tensor]:
        """The mask of each call with every query ``repeats`` times: [Q * repeats, K]."""
        if repeats not in self._repeated:
            # Calls share one storage where they can: repeat that, not every view of it.
            bases = [call.mask_QK if call.mask_QK._base is None else call.mask_QK._base for call in self.calls]
            large = {id(base): base.repeat_interleave(repeats, 0) for base in bases}
            self._repeated[repeats] = [
                large[id(base)][-call.mask_QK.shape[0] * repeats :, -call.mask_QK.shape[1] :]
                for base, call in zip(bases, self.calls, strict=True)
            ]
        return self._repeated[repeats]


def attend(query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, plan: AttentionPlan, scale: float | None) -> Tensor:
    """[T, H, D]: attention of every row to the keys that its call gives it."""
    if query_THD.device.type == "cpu" and query_THD.shape[-1] == value_TGD.shape[-1]:
        return _OnCPU.apply(query_THD, key_TGD, value_TGD, plan, scale)
    return anywhere(query_THD, key_TGD, value_TGD, plan, scale)


def anywhere(query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, plan: AttentionPlan, scale: float | None) -> Tensor:
    """``attend`` in public functions only."""
    repeats = query_THD.shape[1] // key_TGD.shape[1]
    parts, places = [], []
    every_T = torch.arange(query_THD.shape[0], device=query_THD.device)
    for call in plan.calls:
        spans = (*call.open_keys, *call.keys)
        q, k, v = _rows(query_THD, call.queries), _rows(key_TGD, spans), _rows(value_TGD, spans)
        k, v = (x.repeat_interleave(repeats, 1) if repeats > 1 else x for x in (k, v))
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        mask_QK = pad(call.mask_QK, (k.shape[2] - call.mask_QK.shape[1], 0))  # 0: seen
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask_QK, scale=scale)
        parts.append(out[0].transpose(0, 1))
        places.append(_rows(every_T, call.queries))
    return torch.cat(parts).index_select(0, torch.cat(places).argsort())


class _OnCPU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, plan: AttentionPlan, scale: float | None
    ) -> Tensor:
        G = key_TGD.shape[1]
        R = query_THD.shape[1] // G
        q_G1TD, k_G1TD, v_G1TD = (_folded(x, G) for x in (query_THD, key_TGD, value_TGD))
        out_THD = query_THD.new_empty(query_THD.shape)
        out_TGRD = out_THD.unflatten(1, (G, R))
        norms = []
        for call, mask in zip(plan.calls, plan.masks(R), strict=True):
            q = _take(q_G1TD, call.queries, R)
            out, norm = _joined(
                [
                    _FORWARD(q, _take(k_G1TD, keys), _take(v_G1TD, keys), attn_mask=of, scale=scale)
                    for keys, of in call.parts(mask)
                ]
            )
            _put(out_TGRD, call.queries, _unfolded(out, R))
            norms.append(norm)
        ctx.save_for_backward(query_THD, key_TGD, value_TGD, out_THD, *norms)
        ctx.plan, ctx.scale = plan, scale
        return out_THD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_THD: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query_THD, key_TGD, value_TGD, out_THD, *norms = ctx.saved_tensors
        G = key_TGD.shape[1]
        R = query_THD.shape[1] // G
        folded = [_folded(x, G) for x in (grad_THD, query_THD, out_THD)]
        k_G1TD, v_G1TD = _folded(key_TGD, G), _folded(value_TGD, G)
        query_grad = query_THD.new_empty(query_THD.shape)
        key_grad, value_grad = (x.new_zeros(x.shape) for x in (key_TGD, value_TGD))
        # [T, G, R, D], R = 1 for keys: places to write to.
        query_TGRD, key_TG1D, value_TG1D = (x.unflatten(1, (G, -1)) for x in (query_grad, key_grad, value_grad))
        for call, mask, norm in zip(ctx.plan.calls, ctx.plan.masks(R), norms, strict=True):
            grad, q, out = (_take(x, call.queries, R) for x in folded)
            for i, (keys, of) in enumerate(call.parts(mask)):
                k, v = _take(k_G1TD, keys), _take(v_G1TD, keys)
                grads = _BACKWARD(grad, q, k, v, out, norm, 0.0, False, attn_mask=of, scale=ctx.scale)
                _put(query_TGRD, call.queries, _unfolded(grads[0], R), add=i > 0)
                _put(key_TG1D, keys, _unfolded(grads[1], 1), add=True)
                _put(value_TG1D, keys, _unfolded(grads[2], 1), add=True)
        return query_grad, key_grad, value_grad, None, None


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(output, log-sum) over the keys of all parts."""
    if len(parts) == 1:
        return parts[0]
    (first, its_norm), (rest, rest_norm) = parts
    norm = torch.logaddexp(its_norm, rest_norm)
    first, rest = (
        out * (one - norm).exp().unsqueeze(-1).to(out.dtype) for out, one in ((first, its_norm), (rest, rest_norm))
    )
    return first + rest, norm


def _rows(x: Tensor, spans: Spans) -> Tensor:
    return x[spans[0]] if len(spans) == 1 else torch.cat([x[span] for span in spans])


def _take(x: Tensor, spans: Spans, repeats: int = 1) -> Tensor:
    """The rows of these places, along the third dimension, where each place has ``repeats`` rows."""
    parts = [x[:, :, span.start * repeats : span.stop * repeats] for span in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _folded(x_THD: Tensor, G: int) -> Tensor:
    """[G, 1, T * R, D]: heads that share a key head count as further queries. Keys themselves have R = 1."""
    return x_THD.unflatten(1, (G, -1)).transpose(0, 1).flatten(1, 2).unsqueeze(1)


def _unfolded(x_G1ND: Tensor, R: int) -> Tensor:
    """The inverse: [N, G, R, D]."""
    return x_G1ND.squeeze(1).unflatten(1, (-1, R)).transpose(0, 1)


def _put(x_TGRD: Tensor, spans: Spans, part_NGRD: Tensor, add: bool = False) -> None:
    start = 0
    for span in spans:
        place = x_TGRD[span]
        part = part_NGRD[start : start + place.shape[0]]
        place.add_(part) if add else place.copy_(part)
        start += place.shape[0]
