"""Attention of sessions that decode: one new token each, against what the cache has of its session.

Sessions attend together, over as many positions as the longest of them has. So a few that are much longer than the
others attend apart: else one of 3,500 tokens would make each of 63 others look at 3,500 positions. In a layer with a
sliding window each looks at its own window only, where that is much shorter.

Shapes: N sessions of a band, M sessions of any kind, R cache rows, H heads, K key/value heads, C cached positions,
W positions of a window, D head width.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

_BEYOND_CACHE = 1 << 19
"""Numbers in the keys of a layer from which on it is their way from memory that takes the time."""
_WINDOW_SHARE = 0.25
"""Of the positions that a band attends over, as many as a window may have for its keys to be copied out."""
_SAVED, _SAVED_SHARE = 16384, 0.4
"""Positions, and their share of all, that a band of its own must save: its kernel calls take time, too."""


class Band:
    """Decoding sessions that attend together.

    ``rows`` are their cache rows, ascending; ``at`` says which of the decoding tokens are theirs, None: all.
    """

    def __init__(self, rows: np.ndarray, pos: np.ndarray, at: np.ndarray | None, device: torch.device) -> None:
        self.rows = rows
        self.keys_to = int(pos.max()) + 1
        low, high = int(rows[0]), int(rows[-1]) + 1
        self.dense = high - low == len(rows)
        self.span = slice(low, high) if high - low <= 3 * len(rows) else None
        self.at_N = None if at is None else torch.from_numpy(at).to(device)
        self.row_N, self.pos_N = (torch.from_numpy(x).to(device) for x in (rows, pos))
        self.pick_N = self.row_N - low if not self.dense else self.row_N[:0]
        self._masks: dict[tuple[int | None, int], Tensor] = {}
        self._near: dict[int, tuple[Tensor, Tensor]] = {}

    def mask(self, window: int | None, repeat: int, dtype: torch.dtype) -> Tensor:
        """(N * repeat, 1, C) additive mask: keys up to the query's own position, and inside the window.

        N is the length of the span where other rows are computed too; they see something, no matter what.
        """
        mask = self._masks.get((window, repeat))
        if mask is None:
            pos_N = self.pos_N
            if self.span is not None and not self.dense:
                pos_N = pos_N.new_zeros(self.span.stop - self.span.start).index_copy_(0, self.pick_N, pos_N)
            mask = additive(hidden(pos_N, 1, self.keys_to, window)[:, 0], dtype)
            self._masks[window, repeat] = mask = mask.repeat_interleave(repeat, 0)
        return mask

    def near(self, window: int, cached: Tensor) -> tuple[Tensor, Tensor]:
        """((N * K * W), (N * K, 1, W)): where the keys of each window lie in a layer (R, K, C, D) seen as one list of
        vectors, and the additive mask of what would lie before the first."""
        if window not in self._near:
            K, C = cached.shape[1:3]
            pos_N1W = self.pos_N[:, None, None] + torch.arange(1 - window, 1, device=self.pos_N.device)
            row_NK1 = (self.row_N[:, None] * K + torch.arange(K, device=self.row_N.device))[:, :, None]
            mask = additive((pos_N1W < 0).expand(-1, K, -1), cached.dtype).view(-1, 1, window)
            self._near[window] = (row_NK1 * C + pos_N1W.clamp_min(0)).flatten(), mask
        return self._near[window]


def bands(rows: np.ndarray, pos: np.ndarray, device: torch.device) -> list[Band]:
    """The sessions that decode, in bands of similar length. ``rows`` ascend; ``pos`` are the new tokens' positions."""
    if not len(rows):
        return []
    order = np.argsort(pos, kind="stable")
    parts = _cut(order, pos[order] + 1)
    if len(parts) == 1:
        return [Band(rows, pos, None, device)]
    return [Band(rows[at], pos[at], at, device) for at in map(np.sort, parts)]


def _cut(order: np.ndarray, length: np.ndarray) -> list[np.ndarray]:
    """Cuts sessions in the order of their lengths wherever that saves enough."""
    n, longest = len(order), int(length[-1])
    whole = n * longest
    if whole > _SAVED:
        short = np.arange(1, n)
        saved = short * (longest - length[:-1])
        best = int(saved.argmax()) if n > 1 else 0
        if n > 1 and saved[best] >= max(_SAVED, _SAVED_SHARE * whole):
            return _cut(order[: best + 1], length[: best + 1]) + _cut(order[best + 1 :], length[best + 1 :])
    return [order]


def hidden(past_M: Tensor, new: int, total: int, window: int | None) -> Tensor:
    """(M, 1, new, total): which keys the tokens at positions past + (0 ... new - 1) may not see."""
    pos = past_M[:, None, None, None] + torch.arange(new, device=past_M.device)[:, None]
    key = torch.arange(total, device=past_M.device)
    later = key > pos
    return later if window is None else later | (key <= pos - window)


def additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)


def decode(
    bands: Sequence[Band], query_NHD: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
) -> Tensor:
    """(N, H, D), N all sessions: one new token per session against its row of keys and values (R, K, C, D)."""
    if len(bands) == 1:
        return _attend(bands[0], query_NHD, keys, values, scale, window)
    out = query_NHD.new_empty(*query_NHD.shape[:2], values.shape[-1])
    for band in bands:
        assert band.at_N is not None
        out[band.at_N] = _attend(band, query_NHD[band.at_N], keys, values, scale, window)
    return out


def _attend(band: Band, query_NHD: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None) -> Tensor:
    """(N, H, D) of one band. Heads that share a key are treated as queries of it."""
    n, heads, width = query_NHD.shape
    kv_heads = keys.shape[1]
    query = query_NHD.reshape(n, kv_heads, heads // kv_heads, width)
    if window is not None and window <= _WINDOW_SHARE * band.keys_to:
        place, mask = band.near(window, keys)
        keys, values = (x.view(-1, x.shape[-1])[place].view(n, kv_heads, window, -1) for x in (keys, values))
        return _weighted(query, keys, values, mask, scale).reshape(n, heads, -1)
    which = band.row_N if band.span is None else band.span
    keys, values = keys[which, :, : band.keys_to], values[which, :, : band.keys_to]
    scattered = band.span is not None and not band.dense
    if scattered:
        query = query.new_zeros(keys.shape[0], *query.shape[1:]).index_copy_(0, band.pick_N, query)
    out = _weighted(query, keys, values, band.mask(window, kv_heads, query.dtype), scale)
    if scattered:
        out = out[band.pick_N]
    return out.reshape(n, heads, out.shape[-1])


def _weighted(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """(N, K, H / K, D) of queries of that shape, keys and values (N, K, C, D), and a mask (N * K, 1, C)."""
    if query.device.type != "cpu" or query.dtype != torch.float32:
        mask = mask.view(*query.shape[:2], 1, -1)
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    # a third faster than the fused kernel, which is made for long queries
    q, k, v = (x.flatten(0, 1) for x in (query, keys, values))  # views: a cut row keeps its stride
    if q.shape[1] == 1 and k.numel() > _BEYOND_CACHE:
        score = torch.bmm(k, q.transpose(1, 2) * scale).view_as(mask).add_(mask)
    else:
        score = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=scale)
    return torch.bmm(score.softmax(-1), v).view(*query.shape[:3], v.shape[-1])
