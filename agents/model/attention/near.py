"""Attention of every row to few ancestors: a layer whose sliding window is a handful of tokens.

A call for every chain would cost more than what it computes. Here each row gathers the keys of its own window, so that
the whole row of trees is a few operations.

Legend: T tokens, W tokens of the window, H heads, G key heads, R heads per key head, D width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agents.model.attention.chains import Rows

WIDEST = 4
"""Tokens of a window, times heads per key head, up to which this is faster: with 3 it took 0.6 of the time of calls on
a row of 7,600 tokens, with 8 it took 1.6 times as long."""


@dataclass(frozen=True)
class NearPlan:
    """Where the keys of every query lie."""

    key_TW: Tensor
    """Places, the query's own first; its own again where the path begins within the window."""
    mask_TW: Tensor
    """0 / -inf."""

    def attend(self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, scale: float | None) -> Tensor:
        """[T, H, D]: attention of every row to its ancestors within the window."""
        T, H, D = query_THD.shape
        G, W = key_TGD.shape[1], self.key_TW.shape[1]
        near = (x.index_select(0, self.key_TW.flatten()).view(T, W, G, 1, -1) for x in (key_TGD, value_TGD))
        key_TWG1D, value_TWG1D = near
        query_T1GRD = query_THD.view(T, 1, G, H // G, D) * (D**-0.5 if scale is None else scale)
        score_TWGR = (query_T1GRD * key_TWG1D).sum(-1) + self.mask_TW[:, :, None, None]
        weight_TWGR1 = score_TWGR.softmax(1).unsqueeze(-1)
        return (weight_TWGR1 * value_TWG1D).sum(1).view(T, H, -1)


def plan_near(pos: Rows, place: Rows, window: int, dtype: torch.dtype, device: torch.device | str) -> NearPlan:
    """Of a row of trees, given the depth of every row (depth first) and its place."""
    parent = parents(pos)
    row = np.arange(pos.size)
    ancestors = [row]
    for _ in range(window - 1):
        ancestors.append(np.where(ancestors[-1] >= 0, parent[ancestors[-1]], -1))
    row_TW = np.stack(ancestors, 1)
    seen_TW = row_TW >= 0
    key_TW = np.empty_like(row_TW)
    key_TW[place] = place[np.where(seen_TW, row_TW, row[:, None])]
    mask_TW = np.zeros(row_TW.shape)
    mask_TW[place] = np.where(seen_TW, 0.0, -np.inf)
    return NearPlan(torch.from_numpy(key_TW).to(device), torch.from_numpy(mask_TW).to(device, dtype))


def parents(pos: Rows) -> Rows:
    """The row above each row, -1 above a root: depth first, it is the last one before it that is one less deep."""
    row = np.arange(pos.size)
    code = pos * pos.size + row
    sorted_code = np.sort(code)
    before = np.searchsorted(sorted_code, code - pos.size) - 1
    return np.where(pos > 0, sorted_code[before] % max(1, pos.size), -1)
