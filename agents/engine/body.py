"""Small models of known code, layer by layer, without transformers' own way around every layer.

A step of an engine is a few tokens for each layer, and calls of modules take as long as the products there. So where a
model's code is, to the letter, that of Llama, Qwen2 or Qwen3, its layers are computed here in as few operations as
there are, on a CPU in float32. The weights are copies in the order that is fastest to multiply, made anew whenever the
model's own change.

Invariant: the logits and the cache of the model itself up to rounding; the engine compares both when it starts.

Legend: T new tokens, N of them whose logits are wanted, H heads, K key heads, J = H + K, D width of a head, V
vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, silu
from transformers import PreTrainedModel
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from agents.engine.cache import CachePlan, attend
from agents.model.attention.onednn_linear import WideLinear, usable
from agents.model.known_code import same_code
from agents.model.lean_layers import Gated, Norm


@dataclass(frozen=True)
class _Family:
    """Whose code is known."""

    model: type
    body: type
    layer: type
    attention: type
    windowed: bool = True
    """A layer's attention may have a sliding window."""
    normed: bool = False
    """Queries and keys have norms."""


_FAMILIES = (
    _Family(llama.LlamaForCausalLM, llama.LlamaModel, llama.LlamaDecoderLayer, llama.LlamaAttention, windowed=False),
    _Family(qwen2.Qwen2ForCausalLM, qwen2.Qwen2Model, qwen2.Qwen2DecoderLayer, qwen2.Qwen2Attention),
    _Family(qwen3.Qwen3ForCausalLM, qwen3.Qwen3Model, qwen3.Qwen3DecoderLayer, qwen3.Qwen3Attention, normed=True),
)


class Body:
    """Computes what ``model``, whose code is that of ``family``, would. `body_of` makes it."""

    def __init__(self, model: PreTrainedModel, family: _Family) -> None:
        self._model, self._family = model, family
        self._weights = list(model.parameters())
        self._stamp = -1
        self._layers: list[_Layer] = []

    def __call__(self, token_T: Tensor, pos_T: Tensor, plan: CachePlan, keep_N: Tensor | None) -> Tensor:
        """[N, V]: the logits at the tokens ``keep_N`` (None: all); the cache then holds all T tokens."""
        stamp = sum(weight._version for weight in self._weights)
        if stamp != self._stamp:
            self._stamp = stamp
            self._copy()
        x = embedding(token_T, self._embedding)
        cos_T1D, sin_T1D = (part[0].unsqueeze(1) for part in self._rotary(x[None], pos_T[None]))
        sin_T1D[..., : sin_T1D.shape[-1] // 2].neg_()  # what the second half adds to the first has another sign
        turn = cos_T1D, sin_T1D
        for layer in self._layers[:-1]:
            x = layer(x, turn, plan, None)
        x = self._layers[-1](x, turn, plan, keep_N)
        return self._head(self._norm(x))

    def _copy(self) -> None:
        body: Any = self._model.base_model
        self._embedding: Tensor = body.embed_tokens.weight
        self._rotary, self._norm = body.rotary_emb, _Normed.of(body.norm)
        self._layers = [_Layer(layer, self._family) for layer in body.layers]
        self._head = _times([self._model.get_output_embeddings()])


class _Layer:
    """One layer, residuals included."""

    def __init__(self, layer: Any, family: _Family) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._before, self._after = _Normed.of(layer.input_layernorm), _Normed.of(layer.post_attention_layernorm)
        self._index: int = attention.layer_idx
        self._scale: float = attention.scaling
        self._window: int | None = attention.sliding_window if family.windowed else None
        self._D: int = attention.head_dim
        self._H, self._K = (x.out_features // self._D for x in (attention.q_proj, attention.k_proj))
        self._heads: _Normed | None = None
        if family.normed:
            of = (attention.q_norm.weight.expand(self._H, -1), attention.k_norm.weight.expand(self._K, -1))
            self._heads = _Normed(torch.cat(of), attention.q_norm.variance_epsilon)
        self._read = _times([attention.q_proj, attention.k_proj, attention.v_proj])
        self._write = _times([attention.o_proj])
        self._open, self._close = _times([mlp.gate_proj, mlp.up_proj]), _times([mlp.down_proj])

    def __call__(self, x: Tensor, turn: tuple[Tensor, Tensor], plan: CachePlan, keep_N: Tensor | None) -> Tensor:
        """Only the tokens ``keep_N`` are wanted of what it gives; None: all."""
        read_T_D = self._read(self._before(x)).view(len(x), -1, self._D)
        J = self._H + self._K
        turned_JTD = self._turned(read_T_D[:, :J], *turn).transpose(0, 1)
        query_HTD, key_KTD, value_KTD = turned_JTD[: self._H], turned_JTD[self._H :], read_T_D[:, J:].transpose(0, 1)
        got_THD = attend(plan, self._index, query_HTD, key_KTD, value_KTD, self._scale, self._window)
        if keep_N is not None:
            x, got_THD = x[keep_N], got_THD[keep_N]
        x = x.add_(self._write(got_THD.reshape(len(x), -1)))
        gate, up = self._open(self._after(x)).chunk(2, -1)
        return x.add_(self._close(silu(gate, inplace=True).mul_(up)))

    def _turned(self, x_TJD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
        """[T, J, D]: queries and keys, normed where they have norms, and turned by their positions."""
        if self._heads is not None:
            x_TJD = self._heads(x_TJD)
        swapped_TJD = x_TJD.roll(self._D // 2, -1)
        return (x_TJD * cos_T1D).addcmul_(swapped_TJD, sin_T1D)


class _Normed:
    """x / (root mean square) * weight, in fewer operations than `Norm`, which keeps transformers' own bits."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, torch.tensor(eps)

    @classmethod
    def of(cls, norm: Any) -> "_Normed":
        return cls(norm.weight, norm.variance_epsilon)

    def __call__(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = torch.addcmul(self._eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * inverse).mul_(self._weight)


def body_of(model: PreTrainedModel) -> Body | None:
    """What computes ``model``; None unless its code is known, its layers have no adapters, and no one listens in."""
    family = _family(model)
    here = all(p.dtype == torch.float32 and p.device.type == "cpu" and not p.is_inference() for p in model.parameters())
    watched = any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in model.modules())
    return Body(model, family) if family is not None and here and not watched else None


def _family(model: PreTrainedModel) -> _Family | None:
    body: Any = model.base_model
    plain = (nn.Linear, WideLinear)
    for family in _FAMILIES:
        if (
            same_code(type(model), family.model)
            and same_code(type(body), family.body)
            and type(body.embed_tokens) is nn.Embedding
            and type(model.get_output_embeddings()) in plain
            and isinstance(body.norm, Norm)
            and all(_fits(layer, family, plain) for layer in body.layers)
        ):
            return family
    return None


def _fits(layer: Any, family: _Family, plain: tuple[type, ...]) -> bool:
    """Whether a layer is one of the family's, with linear layers that are ``plain``."""
    attention, mlp = layer.self_attn, layer.mlp
    if not (same_code(type(layer), family.layer) and same_code(type(attention), family.attention)):
        return False
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [attention.q_norm, attention.k_norm] if family.normed else []
    products = [module for name, module in layer.named_modules() if name.endswith("_proj")]
    return (
        isinstance(mlp, Gated)
        and mlp.swish
        and all(isinstance(norm, Norm) for norm in norms)
        and all(type(product) in plain for product in products)
    )


@torch.no_grad()
def _times(layers: list[Any]) -> Callable[[Tensor], Tensor]:
    """The product with the weights of all ``layers``, one under the other, and their biases."""
    bias_O = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    if not usable():
        weight_IO = torch.cat([layer.weight.t() for layer in layers], 1).contiguous()
        return partial(linear, weight=weight_IO.t(), bias=bias_O)
    weight_OI = torch.cat([layer.weight for layer in layers])
    whole = nn.utils.skip_init(nn.Linear, weight_OI.shape[1], weight_OI.shape[0], bias=bias_O is not None)
    whole.weight = nn.Parameter(weight_OI, requires_grad=False)
    whole.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)
    whole.__class__ = WideLinear
    whole.packs = True
    return whole.forward
