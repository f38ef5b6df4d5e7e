"""Small models of known code in C that was compiled for this processor: a whole forward is one call.

Invariant: the logits and the cache of the model itself up to rounding, whatever other sessions are read beside; the
engine compares both when it starts.

Legend: T new tokens, N of them whose logits are wanted, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from agents.compiled import transformer
from agents.compiled.transformer import Layer, Norm, Product, Sizes, Transformer
from agents.engine.cache import CachePlan
from agents.engine.families import KnownBody, LayerParts


def can_compile() -> bool:
    """Whether it can be computed so here."""
    return not transformer.missing()


class CompiledBody(KnownBody):
    """Computes what ``model``, whose code is that of ``family``, would."""

    how = "in C for this processor"

    def __call__(self, token_T: Tensor, pos_T: Tensor, plan: CachePlan, keep_N: Tensor | None) -> Tensor:
        """[N, V]: the logits at the tokens ``keep_N`` (None: all); the cache then holds all T tokens."""
        cache = plan.cache
        self._length = cache.max_length  # an engine has one cache
        self.follow()
        cached = [cache.of(index, self._sizes, self._embedding) for index in self._indices]
        return self._body(embedding(token_T, self._embedding), plan.row_T, pos_T, keep_N, cached, plan.longest)

    @torch.no_grad()
    def _copy(self) -> None:
        body: Any = self._model.base_model
        parts = [LayerParts(layer, self._family) for layer in body.layers]
        first = parts[0]
        self._embedding: Tensor = body.embed_tokens.weight
        self._indices = [part.index for part in parts]
        self._sizes = [(first.K, first.D)] * 2
        sizes = Sizes(self._embedding.shape[1], first.close[0].in_features, first.H, first.K, first.D)
        positions = torch.arange(self._length)[None]
        cos, sin = (x[0].contiguous() for x in body.rotary_emb(self._embedding[None, :1], positions))
        head = Product.of(*_stacked([self._model.get_output_embeddings()]))
        self._body = Transformer(sizes, [_layer(part) for part in parts], _norm(body.norm), head, cos, sin)


def _layer(parts: LayerParts) -> Layer:
    heads = None if parts.heads is None else Norm(parts.heads[0].contiguous(), parts.heads[1])
    read, write, open_, close = (
        Product.of(*_stacked(modules)) for modules in (parts.read, parts.write, parts.open, parts.close)
    )
    before, after = _norm(parts.before), _norm(parts.after)
    return Layer(before, after, heads, read, write, open_, close, parts.scale, parts.window)


def _norm(norm: Any) -> Norm:
    return Norm(norm.weight.detach().contiguous(), norm.variance_epsilon)


def _stacked(modules: list[Any]) -> tuple[Tensor, Tensor | None]:
    """The weights of all, one under the other, and their biases."""
    bias_O = None if modules[0].bias is None else torch.cat([module.bias for module in modules])
    return torch.cat([module.weight for module in modules]), bias_O
