"""The attention mask of a row of token trees.

The whole mask is one vector: a query q sees a key kv exactly when ``kv <= q < end_T[kv]``; a sliding window counts
depth, not rows. The dense matrix here is the oracle that the plan of ``blocks.py`` is tested against.

Legend: T tokens in depth-first order.
"""

import torch
from torch import Tensor


def tree_mask(end_T: Tensor, *, pos_T: Tensor | None = None, window: int | None = None) -> Tensor:
    """bool [T, T], True where the query (row) sees the key (column).

    ``window`` additionally demands ``pos_T[q] - pos_T[kv] < window``, as transformers does on a single path.
    Raises ValueError when a window comes without depths.
    """
    row_T = torch.arange(end_T.numel(), device=end_T.device)
    mask_TT = (row_T <= row_T[:, None]) & (row_T[:, None] < end_T)
    if window is not None:
        if pos_T is None:
            raise ValueError("a sliding window is measured in depth: pass pos_T as well")
        mask_TT &= pos_T[:, None] - pos_T < window
    return mask_TT


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The same mask as 0 / -inf in ``dtype``: what eager attention adds to the scores.

    A bool mask would be added as 0 / 1 there, without any error.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))
