"""The attention of a row of token trees as one call of FlashAttention for sequences of different lengths, for CUDA.

Each chain is a sequence: its queries are the chain, its keys the chain behind all its ancestors, gathered. The kernel
aligns the causal mask with the end of the keys, so a query sees its ancestors and itself. Nothing else is masked.

Keys that several chains need are copied for each of them: a critic prompt of 20 tokens brings its whole past along. A
row of few forks costs little more than its tokens, one with many short branches much more. FlexAttention copies none.

Legend: T tokens, K gathered keys, N chains, H heads, G key heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.model.attention.chains import Rows, chains_of, paths_of

PACKAGE = "flash_attn"
WIDEST = 256
"""Widest head that the kernels take."""


@dataclass(frozen=True)
class Sequences:
    """The chains as the kernel reads them."""

    key_K: Tensor
    """Place in the row of each gathered key."""
    first_query_N1: Tensor
    """Where each chain's queries begin, and the end of the last; int32."""
    first_key_N1: Tensor
    """The same of its keys."""
    most_queries: int
    most_keys: int


class VarlenPlan:
    """The sequences of one row of trees: one set per sliding window, made when a layer first asks for it."""

    def __init__(self, pos_T: Tensor, end_T: Tensor, device: torch.device | str = "cuda") -> None:
        pos, end = pos_T.cpu().numpy(), end_T.cpu().numpy()
        self._device = device
        self._chains = chains_of(pos, end)
        self._paths = paths_of(self._chains, pos, end)
        order: Rows = np.concatenate(self._chains)
        self._place = np.empty_like(order)
        self._place[order] = np.arange(order.size)
        # Chain by chain, so that the queries are the row itself.
        self.order_T: Tensor | None = torch.from_numpy(order).to(device)
        self.place_T: Tensor | None = torch.from_numpy(self._place).to(device)
        self._sequences: dict[int | None, Sequences] = {}

    def __len__(self) -> int:
        return self._place.size

    def sequences(self, window: int | None) -> Sequences:
        """Those of a layer with this sliding window (None: full attention)."""
        if window not in self._sequences:
            keys = self._paths
            if window is not None:
                # The first query of a chain sees window - 1 ancestors, the later ones fewer.
                both = zip(self._paths, self._chains, strict=True)
                keys = [path[max(0, path.size - chain.size - window + 1) :] for path, chain in both]
            self._sequences[window] = Sequences(
                torch.from_numpy(self._place[np.concatenate(keys)]).to(self._device),
                self._edges(self._chains),
                self._edges(keys),
                max(chain.size for chain in self._chains),
                max(path.size for path in keys),
            )
        return self._sequences[window]

    def _edges(self, parts: list[Rows]) -> Tensor:
        edges = np.cumsum([0, *(part.size for part in parts)])
        return torch.from_numpy(edges).to(self._device, torch.int32)

    def attend(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, window: int | None, scale: float | None
    ) -> Tensor:
        """[T, H, D]: attention of every row to its ancestors within the window."""
        of = self.sequences(window)
        out: Tensor = kernel()(
            query_THD,
            key_TGD.index_select(0, of.key_K),
            value_TGD.index_select(0, of.key_K),
            of.first_query_N1,
            of.first_key_N1,
            of.most_queries,
            of.most_keys,
            softmax_scale=scale,
            causal=True,
            window_size=(-1, -1) if window is None else (window - 1, 0),
        )
        return out


def kernel() -> Callable[..., Any]:
    """FlashAttention's function. Raises ImportError where the package is missing."""
    from flash_attn import flash_attn_varlen_func  # not installed with the project: it is built for one CUDA

    return flash_attn_varlen_func
