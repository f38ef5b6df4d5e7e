"""Small transformers by ``transformer.c``: the same on tensors.

Legend: T new tokens, N of them whose logits are wanted, W hidden width, V vocabulary, I and O features in and out,
P columns of a panel.
"""

from collections.abc import Sequence
from ctypes import CDLL, POINTER, Structure, byref, c_float, c_ssize_t, c_void_p
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from agents.compiled.build import library, why_not
from agents.compiled.threads import allowed, in_threads

SOURCE = Path(__file__).with_name("transformer.c")
WORTH = 1 << 25
"""Multiplications of a call that pay for a further thread."""


def missing() -> str:
    """Why it cannot be called here, to follow "since"; empty where it can."""
    return why_not(SOURCE)


@dataclass(frozen=True)
class Norm:
    """x / (root mean square) * weight."""

    weight: Tensor
    eps: float


@dataclass(frozen=True)
class Product:
    """x W^T + bias. The weights are laid out in panels, [O / P, I, P]."""

    panels: Tensor
    bias_O: Tensor | None
    features: int

    @classmethod
    def of(cls, weight_OI: Tensor, bias_O: Tensor | None = None) -> "Product":
        O, I = weight_OI.shape  # noqa: E741
        columns: int = _called().turnwise_panel()
        panels = pad(weight_OI, (0, 0, 0, -O % columns)).view(-1, columns, I).transpose(1, 2).contiguous()
        return cls(panels, bias_O, O)


@dataclass(frozen=True)
class Layer:
    """The weights of one layer."""

    before: Norm
    after: Norm
    heads: Norm | None
    """Of queries and keys: [H + G, D]."""
    read: Product
    """Queries, keys and values."""
    write: Product
    open: Product
    """Gate and up."""
    close: Product
    scale: float
    window: int | None


@dataclass(frozen=True)
class Sizes:
    """Of a model: hidden width, width of the MLP, heads, key heads, width of a head."""

    hidden: int
    inner: int
    heads: int
    key_heads: int
    width: int


class Transformer:
    """A model's weights, ready to be called. ``cos`` and ``sin`` have a row for every position."""

    def __init__(
        self, sizes: Sizes, layers: Sequence[Layer], norm: Norm, head: Product, cos: Tensor, sin: Tensor
    ) -> None:
        self._held = (layers, norm, head, cos, sin)  # what the structures point at
        products = [head, *(product for one in layers for product in (one.read, one.write, one.open, one.close))]
        self._weight = sum(product.panels.numel() for product in products)
        self._features = head.features
        self._layers = (_Layer * len(layers))(*map(_layer, layers))
        self._body = _Body(
            W=sizes.hidden, F=sizes.inner, H=sizes.heads, G=sizes.key_heads, D=sizes.width, layers=len(layers),
            cos=cos.data_ptr(), sin=sin.data_ptr(), norm=_norm(norm), head=_weights(head),
        )  # fmt: skip

    def __call__(
        self,
        x_TW: Tensor,
        row_T: Tensor,
        pos_T: Tensor,
        keep_N: Tensor | None,
        cached: Sequence[tuple[Tensor, Tensor]],
        longest: int,
    ) -> Tensor:
        """[N, V]: the logits at ``keep_N`` (None: all), which ascend. ``x_TW`` is overwritten, and ``cached``, the keys
        and values of each layer, then have all T tokens; none lies beyond ``longest``."""
        called, N = _called(), len(x_TW) if keep_N is None else len(keep_N)
        for layer, (keys, values) in zip(self._layers, cached, strict=True):
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        logits = x_TW.new_empty(N, -(-self._features // called.turnwise_panel()) * called.turnwise_panel())

        def part(a: int, b: int) -> None:
            body = _Body.from_buffer_copy(self._body)
            body.T, body.C = b - a, cached[0][0].shape[2]
            body.row, body.pos = row_T[a:b].data_ptr(), pos_T[a:b].data_ptr()
            at, end, kept = a, b, None
            if keep_N is not None:
                at, end = (int(x) for x in torch.searchsorted(keep_N, torch.tensor([a, b])))
                kept = keep_N[at:end] - a
                body.keep = kept.data_ptr()
            body.N = end - at
            scratch = x_TW.new_empty(called.turnwise_body_scratch(byref(body), longest))
            called.turnwise_body(
                byref(body), self._layers, longest, x_TW[a:b].data_ptr(), scratch.data_ptr(), logits[at:end].data_ptr()
            )

        edges = self._edges(row_T)
        in_threads([partial(part, a, b) for a, b in pairwise(edges)])
        return logits[:, : self._features]

    def _edges(self, row_T: Tensor) -> list[int]:
        """Where the tokens are cut into parts that are computed at once, each of whole sessions: the same bits in any
        number of parts."""
        T = len(row_T)
        parts = min(allowed(), T * self._weight // WORTH)
        if parts <= 1:
            return [0, T]
        begins = np.append(np.flatnonzero(np.diff(row_T.numpy())) + 1, T)
        wanted = T * np.arange(1, parts) // parts
        return sorted({0, T, *begins[np.searchsorted(begins, wanted)].tolist()})


# -- the structures of the source -------------------------------------------------------------------------------------


class _Weights(Structure):
    _fields_ = (("panels", c_void_p), ("bias", c_void_p), ("I", c_ssize_t), ("O", c_ssize_t))


class _Norm(Structure):
    _fields_ = (("weight", c_void_p), ("eps", c_float))


class _Layer(Structure):
    _fields_ = (
        *((name, _Norm) for name in ("before", "after", "heads")),
        *((name, _Weights) for name in ("read", "write", "open", "close")),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("scale", c_float),
        ("window", c_ssize_t),
    )


class _Body(Structure):
    _fields_ = (
        *((name, c_ssize_t) for name in ("T", "N", "W", "F", "H", "G", "D", "C", "layers")),
        *((name, c_void_p) for name in ("row", "pos", "keep", "cos", "sin")),
        ("norm", _Norm),
        ("head", _Weights),
    )


def _norm(norm: Norm | None) -> _Norm:
    return _Norm(None, 0) if norm is None else _Norm(norm.weight.data_ptr(), norm.eps)


def _weights(product: Product) -> _Weights:
    bias = None if product.bias_O is None else product.bias_O.data_ptr()
    return _Weights(product.panels.data_ptr(), bias, product.panels.shape[1], product.features)


def _layer(layer: Layer) -> _Layer:
    norms = (_norm(norm) for norm in (layer.before, layer.after, layer.heads))
    products = (_weights(product) for product in (layer.read, layer.write, layer.open, layer.close))
    return _Layer(*norms, *products, None, None, layer.scale, layer.window or 1 << 40)


def _called() -> CDLL:
    """The library, whose functions know their arguments."""
    found = library(SOURCE)
    if found.turnwise_panel.restype is not c_ssize_t:
        body, layers, numbers = POINTER(_Body), POINTER(_Layer), c_void_p
        found.turnwise_panel.argtypes, found.turnwise_panel.restype = (), c_ssize_t
        found.turnwise_body_scratch.argtypes, found.turnwise_body_scratch.restype = (body, c_ssize_t), c_ssize_t
        found.turnwise_body.argtypes = (body, layers, c_ssize_t, numbers, numbers, numbers)
        found.turnwise_body.restype = None
    return found
