"""The attention of a row of token trees as one FlexAttention call, for CUDA.

Invariant: it equals dense attention under ``mask.tree_mask``. The block mask is made from the mask vector alone, by the
smallest and largest entry of each block of rows: nothing of size T x T is made, on no device, and nothing waits for
the device. Rows are padded to whole blocks, and the kernel is compiled once for rows and windows of every length.

A CPU computes the forward only: torch has no backward of FlexAttention there.

Legend: T tokens, P padded tokens, N blocks of tokens, B tokens of a block, H heads, G key heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental import _config as sizes
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

BLOCK = 128
"""Rows of a block: what the kernels skip or compute as a whole."""
LEAST_BLOCKS = 2
"""Of a row: what has a size of 1 is compiled apart."""
LEAST_WIDTH = 16
"""Narrowest head that the CUDA kernels take."""
NO_WINDOW = 2**30
"""Tokens that a layer without a sliding window sees."""
MOST_KERNELS = 64
"""Compiled kernels at once: shapes of heads x with and without gradient. The default of 8 would end in an error."""

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def padded(tokens: int) -> int:
    """The length that a row is padded to: whole blocks."""
    return max(LEAST_BLOCKS, -(-tokens // BLOCK)) * BLOCK


class FlexPlan:
    """The block masks of one row of trees: one per sliding window, made when a layer first asks for it.

    ``compiled`` False runs the reference implementation, which makes the whole T x T scores: for tests.
    """

    order_T: Tensor | None = None
    place_T: Tensor | None = None
    """The row stays depth first."""

    def __init__(
        self, pos_T: Tensor, end_T: Tensor, device: torch.device | str = "cpu", *, compiled: bool = True
    ) -> None:
        self._tokens = pos_T.numel()
        extra = padded(self._tokens) - self._tokens
        # A padded row is a tree of its own: it sees itself, so that no row is without a key.
        alone = torch.arange(self._tokens + 1, self._tokens + extra + 1, device=device)
        self._end_P = torch.cat([end_T.to(device), alone]).int()
        self._pos_P = pad(pos_T.to(device), (0, extra)).int()
        self._compiled = compiled
        self._masks: dict[int | None, BlockMask] = {}

    def __len__(self) -> int:
        return self._tokens

    def mask(self, window: int | None) -> BlockMask:
        """The block mask for a layer with this sliding window (None: full attention)."""
        if window not in self._masks:
            self._masks[window] = block_mask(self._pos_P, self._end_P, window)
        return self._masks[window]

    def attend(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, window: int | None, scale: float | None
    ) -> Tensor:
        """[T, H, D]: attention of every row to its ancestors within the window."""
        extra = self._end_P.numel() - self._tokens
        q, k, v = (pad(x, (0, 0, 0, 0, 0, extra)).transpose(0, 1)[None] for x in (query_THD, key_TGD, value_TGD))
        call: Any = kernel() if self._compiled else flex_attention
        with _any_length():
            out = call(q, k, v, block_mask=self.mask(window), scale=scale, enable_gqa=q.shape[1] != k.shape[1])
        return out[0, :, : self._tokens].transpose(0, 1)


@contextmanager
def _any_length() -> Iterator[None]:
    """Sizes that happen to be equal are not taken for the same one: others would be compiled anew."""
    limits: Any = {"recompile_limit": MOST_KERNELS, "accumulated_recompile_limit": MOST_KERNELS}
    shapes: Any = sizes
    with torch._dynamo.config.patch(**limits), shapes.patch(use_duck_shape=False):
        yield


@cache
def kernel() -> Callable[..., Tensor]:
    """FlexAttention, compiled for rows of any length. Never falls back to the whole scores: it would raise."""
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


def mask_mod(pos_P: Tensor, end_P: Tensor, window: int | None) -> MaskMod:
    """The rule of ``mask.tree_mask`` for one query and one key."""
    # A tensor, so that one kernel serves every window and none.
    reach = torch.full((), NO_WINDOW if window is None else window, dtype=pos_P.dtype, device=pos_P.device)

    def near_ancestor(_batch: Tensor, _head: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        return (kv <= q) & (q < end_P[kv]) & (pos_P[q] - pos_P[kv] < reach)

    return near_ancestor


def block_mask(pos_P: Tensor, end_P: Tensor, window: int | None) -> BlockMask:
    """Which blocks a query block meets: whole, in part, or not at all. P must be a multiple of ``BLOCK``.

    Exact, but for windows, where a block of which nothing is seen may be among those that are seen in part.
    """
    end_NB, pos_NB = end_P.view(-1, BLOCK), pos_P.view(-1, BLOCK)
    first_N = torch.arange(end_NB.shape[0], device=end_P.device) * BLOCK
    q_N1, last_N1 = first_N[:, None], first_N[:, None] + BLOCK - 1
    above_NN = first_N < q_N1
    some_NN = (above_NN & (end_NB.amax(1) > q_N1)) | (first_N == q_N1)
    whole_NN = above_NN & (end_NB.amin(1) > last_N1)
    if window is not None:
        some_NN &= pos_NB.amin(1)[:, None] - pos_NB.amax(1) < window
        whole_NN &= pos_NB.amax(1)[:, None] - pos_NB.amin(1) < window
    parts = (*_listed(some_NN & ~whole_NN), *_listed(whole_NN))
    length = end_P.numel()
    rule = mask_mod(pos_P, end_P, window)
    return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=BLOCK, mask_mod=rule, seq_lengths=(length, length))


def _listed(chosen_NN: Tensor) -> tuple[Tensor, Tensor]:
    """(how many of each row, [1, 1, N]; which, those chosen first, [1, 1, N, N])."""
    order_NN = chosen_NN.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return chosen_NN.sum(-1, dtype=torch.int32)[None, None], order_NN.int()[None, None].contiguous()
