"""Norms, gated MLPs and rotary positions in fewer operations, which is what small models spend their time on.

Invariant: the numbers and gradients of the layer's own code up to rounding. Only layers whose code is, to the letter,
that of Llama's are taken, in whatever family they are; every other one stays as it is. What C computes (`layers`),
PyTorch computes where it cannot.

Legend: N rows, D width, T tokens, H heads.
"""

from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import rms_norm, silu
from transformers.activations import SiLUActivation
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, apply_rotary_pos_emb

from agents.compiled import layers
from agents.model.attention.onednn_linear import WideLinear
from agents.model.compiled_linear import fits, gated_mlp
from agents.model.known_code import TURN, same_code, turns
from agents.model.lora_linear import OnePassLinear


def make_lean(model: nn.Module, *, compiled: bool = False) -> None:
    """Has the layers of ``model`` that are known compute so, ``compiled`` in C where that fits. Weights stay."""
    for module in model.modules():
        own: Any = type(module)
        for lean, known in _KNOWN:
            if not issubclass(own, lean) and same_code(own, known):
                module.__class__ = _mixed(lean, own)
        if isinstance(module, Norm | Gated | OnePassLinear | WideLinear):
            module.compiled = compiled
        elif compiled and turns(own):
            module.__class__ = _turning(own)


@cache
def _mixed(lean: Any, own: Any) -> type:
    """``own``, named as before, with the forward pass of ``lean``."""
    return type(own.__name__, (lean, own), {"__module__": own.__module__})


class Norm(nn.Module):
    """The root mean square norm of Llama and of many others."""

    compiled: bool = False

    def forward(self, x: Tensor) -> Tensor:
        weight_D: Any = self.weight
        if {x.dtype, weight_D.dtype} == {torch.bfloat16} and x.is_cuda:
            return rms_norm(x, weight_D.shape, weight_D, self.variance_epsilon)  # type: ignore[arg-type]
        if {x.dtype, weight_D.dtype} != {torch.float32} or weight_D.requires_grad:
            return super().forward(x)
        compiled = self.compiled and layers.fits(x)
        if torch.is_grad_enabled() and x.requires_grad:
            return _Normed.apply(x, weight_D, self.variance_epsilon, compiled)
        if compiled:
            return layers.norm(x, weight_D, self.variance_epsilon)[0]  # type: ignore[arg-type]
        return (x * _inverse(x, self.variance_epsilon)).mul_(weight_D)  # type: ignore[arg-type]


def _inverse(x_ND: Tensor, eps: float) -> Tensor:
    """[N, 1]: one over the root mean square."""
    square_N = torch.linalg.vecdot(x_ND, x_ND).unsqueeze(-1)
    return square_N.div_(x_ND.shape[-1]).add_(eps).rsqrt_()


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_D: Tensor, eps: float, compiled: bool) -> Tensor:
        ctx.compiled = compiled
        if compiled:
            out_ND, inverse_N = layers.norm(x_ND, weight_D, eps)
        else:
            inverse_N = _inverse(x_ND, eps)
            out_ND = (x_ND * inverse_N).mul_(weight_D)
        ctx.save_for_backward(x_ND, weight_D, inverse_N)
        return out_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor, None, None, None]:
        x_ND, weight_D, inverse_N = ctx.saved_tensors
        if ctx.compiled:
            return layers.norm_backward(grad_ND, x_ND, weight_D, inverse_N), None, None, None
        out_ND = grad_ND * weight_D
        along_N = torch.linalg.vecdot(out_ND, x_ND).unsqueeze(-1).div_(x_ND.shape[-1]).mul_(inverse_N**3)
        return out_ND.mul_(inverse_N).addcmul_(x_ND, along_N, value=-1), None, None, None


class Gated(nn.Module):
    """The MLP of Llama and of many others: silu(gate) * up, then down."""

    compiled: bool = False

    def forward(self, x: Tensor) -> Tensor:
        own: Any = self
        if not self.swish:
            return super().forward(x)
        if self.compiled and (whole := _at_once(x, own.gate_proj, own.up_proj, own.down_proj)) is not None:
            return whole
        gate, up = own.gate_proj(x), own.up_proj(x)
        compiled = self.compiled and layers.fits(gate, up)
        if torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad):
            inner = _Swish.apply(gate, up, compiled)
        elif compiled:
            inner = layers.gate(gate, up)
        else:
            inner = silu(gate, inplace=True).mul_(up)
        return own.down_proj(inner)

    @property
    def swish(self) -> bool:
        """Whether its activation is the usual one."""
        own: Any = self
        return isinstance(own.act_fn, nn.SiLU | SiLUActivation)


def _at_once(x: Tensor, *layers: nn.Module) -> Tensor | None:
    """The MLP of gate, up and down in one call, where all three are LoRA layers that C computes."""
    parts = [layer.parts(x) if isinstance(layer, OnePassLinear) and layer.compiled else None for layer in layers]
    adapted = [one for one in parts if one is not None]
    x_NI = x.reshape(-1, x.shape[-1])
    if len(adapted) < len(layers) or not fits(x_NI, *adapted):
        return None
    out_NO = gated_mlp(x_NI, *adapted)
    return out_NO.view(*x.shape[:-1], out_NO.shape[-1])


class _Swish(torch.autograd.Function):
    """silu(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, compiled: bool) -> Tensor:
        ctx.compiled = compiled
        ctx.save_for_backward(gate, up)
        return layers.gate(gate, up) if compiled else silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, up = ctx.saved_tensors
        if ctx.compiled:
            return *layers.gate_backward(grad, gate, up), None
        return torch.ops.aten.silu_backward(grad * up, gate), silu(gate).mul_(grad), None


@cache
def _turning(own: Any) -> type:
    """``own``, named as before, with its own forward pass, in which queries and keys are `turned`."""
    forward = own.forward
    names = forward.__globals__ | {TURN: turned}
    ours = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    ours.__kwdefaults__ = forward.__kwdefaults__
    return type(own.__name__, (own,), {"__module__": own.__module__, "forward": ours})


def turned(q_1HTD: Tensor, k_1HTD: Tensor, cos_1TD: Tensor, sin_1TD: Tensor, unsqueeze_dim: int = 1) -> Any:
    """Queries and keys at their positions, as Llama's function of that name gives them."""
    one_row = q_1HTD.shape[0] == k_1HTD.shape[0] == cos_1TD.shape[0] == 1 == unsqueeze_dim
    fits = one_row and q_1HTD.shape[-1] == cos_1TD.shape[-1] and layers.fits(q_1HTD, k_1HTD, cos_1TD, sin_1TD)
    if not fits or cos_1TD.requires_grad:
        return apply_rotary_pos_emb(q_1HTD, k_1HTD, cos_1TD, sin_1TD, unsqueeze_dim)
    q_HTD, k_HTD = _Turned.apply(q_1HTD.squeeze(0), k_1HTD.squeeze(0), cos_1TD[0], sin_1TD[0])
    return q_HTD[None], k_HTD[None]


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q_HTD: Tensor, k_HTD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos_TD, sin_TD)
        return layers.turn(q_HTD, cos_TD, sin_TD), layers.turn(k_HTD, cos_TD, sin_TD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_HTD: Tensor) -> tuple[Tensor, Tensor, None, None]:
        turning = ctx.saved_tensors  # which checkpointing lets be read once
        q_HTD, k_HTD = (layers.turn(grad_HTD, *turning, back=True) for grad_HTD in grads_HTD)
        return q_HTD, k_HTD, None, None


_KNOWN: tuple[tuple[Any, Any], ...] = ((Norm, LlamaRMSNorm), (Gated, LlamaMLP))
"""Whose code is known, and what computes the same."""
