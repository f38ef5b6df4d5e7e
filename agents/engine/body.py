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
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, silu
from transformers import PreTrainedModel

from agents.engine.cache import CachePlan, attend
from agents.engine.compiled_body import CompiledBody, can_compile
from agents.engine.families import Family, KnownBody, LayerParts, family_of
from agents.model.attention.onednn_linear import WideLinear, usable


class Body(KnownBody):
    """Computes what ``model``, whose code is that of ``family``, would. `body_of` makes it."""

    how = "in few operations a layer"

    def __call__(self, token_T: Tensor, pos_T: Tensor, plan: CachePlan, keep_N: Tensor | None) -> Tensor:
        """[N, V]: the logits at the tokens ``keep_N`` (None: all); the cache then holds all T tokens."""
        self.follow()
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

    def __init__(self, layer: Any, family: Family) -> None:
        parts = LayerParts(layer, family)
        self._before, self._after = _Normed.of(parts.before), _Normed.of(parts.after)
        self._index, self._scale, self._window = parts.index, parts.scale, parts.window
        self._D, self._H, self._K = parts.D, parts.H, parts.K
        self._heads = None if parts.heads is None else _Normed(*parts.heads)
        self._read, self._write = _times(parts.read), _times(parts.write)
        self._open, self._close = _times(parts.open), _times(parts.close)

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


def body_of(model: PreTrainedModel) -> Body | CompiledBody | None:
    """What computes ``model``; None unless it is of a known family."""
    family = family_of(model)
    if family is None:
        return None
    return CompiledBody(model, family) if can_compile() else Body(model, family)


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
