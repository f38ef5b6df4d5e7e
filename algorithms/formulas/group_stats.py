"""Differentiable statistics within groups.

Invariant: an entry of weight c is c entries, and one of weight 0 does not exist; entries may be episodes or turns.

Legend of the shape suffixes: G groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def group_sum(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """sum_G of the entries ``x``, of which each lies in the group that ``group`` says."""
    return x.new_zeros(groups).index_add(0, group, x)


def group_mean(x: Tensor, weight: Tensor, group: Tensor, groups: int) -> Tensor:
    """mean_G, weighted; 0 for a group without weight."""
    total_G = group_sum(weight, group, groups)
    return group_sum(weight * x, group, groups) / torch.where(total_G > 0, total_G, 1)
