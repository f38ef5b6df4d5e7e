"""Generalised advantage estimation whose step is a sampled token.

Invariant: a token that several episodes share has an advantage in each of them: sharing the tree changes nothing. What
lies between two turns was not sampled and is not a step: the last token of a turn is followed by the first of the next.

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes, C columns = an episode's sampled tokens in
order, P rows = sampled tokens of single episodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agents.tree import Batch, Tensor


def token_gae(
    reward_LC: Tensor, value_LC: Tensor, end_L: Tensor, mask_LC: Tensor, discount: float, gae_lambda: float
) -> Tensor:
    """A_LC = delta_t + discount lambda A_{t+1} with delta_t = r_t + discount V_{t+1} - V_t [arXiv 1506.02438].

    V_t is the value before token t was sampled, ``end_L`` that after the last. Columns of mask 0 are holes: t + 1 is
    the next column of mask 1, and A is 0 in them.
    """
    adv_LC = torch.zeros_like(value_LC)
    adv_L, later_L = torch.zeros_like(end_L), end_L
    for c in reversed(range(mask_LC.shape[1])):
        here_L = mask_LC[:, c] > 0
        delta_L = reward_LC[:, c] + discount * later_L - value_LC[:, c]
        adv_L = torch.where(here_L, delta_L + discount * gae_lambda * adv_L, adv_L)
        later_L = torch.where(here_L, value_LC[:, c], later_L)
        adv_LC[:, c] = torch.where(here_L, adv_L, 0)
    return adv_LC


def in_time(leaf_P: Tensor, leaves: int) -> tuple[Tensor, Tensor, Tensor]:
    """(order_P, column_P, length_L): rows of a batch, depth first, put episode by episode; which of its episode's rows
    each then is, from 0; and how many rows each episode has.

    Depth first, what is done comes after all that led to it: the order is that of time in each episode.
    """
    order_P = leaf_P.argsort(stable=True)
    length_L = torch.bincount(leaf_P, minlength=leaves)
    first_L = length_L.cumsum(0) - length_L
    return order_P, torch.arange(leaf_P.numel(), device=leaf_P.device) - first_L[leaf_P[order_P]], length_L


@dataclass(frozen=True)
class TokenRows:
    """Every sampled token of every episode, also of those that share it: episode by episode, in the order of time."""

    token_P: Tensor
    leaf_P: Tensor
    column_P: Tensor
    """Which of its episode's sampled tokens it is."""
    length_L: Tensor
    """Sampled tokens of each episode."""

    @classmethod
    def of(cls, batch: Batch) -> TokenRows:
        token_N = torch.nonzero(batch.action_T >= 0).squeeze(1)
        lo_N, hi_N = batch.lo_A[batch.action_T[token_N]], batch.hi_A[batch.action_T[token_N]]
        span_N = hi_N - lo_N
        token_P = torch.repeat_interleave(token_N, span_N)
        start_P = torch.repeat_interleave(span_N.cumsum(0) - span_N - lo_N, span_N)
        leaf_P = torch.arange(token_P.numel(), device=token_P.device) - start_P
        order_P, column_P, length_L = in_time(leaf_P, batch.leaf_L.numel())
        return cls(token_P[order_P], leaf_P[order_P], column_P, length_L)

    def matrix(self, x_P: Tensor) -> Tensor:
        """x_LC: a row for each episode, 0 after its last token."""
        columns = int(self.length_L.max()) if self.length_L.numel() else 0
        x_LC = x_P.new_zeros(self.length_L.numel(), columns)
        return x_LC.index_put((self.leaf_P, self.column_P), x_P)

    def per_token(self, x_P: Tensor, tokens: int) -> Tensor:
        """x_T: the sum over the episodes that share each of the batch's ``tokens``."""
        return x_P.new_zeros(tokens).index_add(0, self.token_P, x_P)

    def advantage(self, batch: Batch, value_P: Tensor, end_L: Tensor, discount: float, gae_lambda: float) -> Tensor:
        """A_P. A turn's reward is paid for its last token; ``value_P`` are the values before each token."""
        paid_A = torch.nan_to_num(batch.reward_A.double(), posinf=0.0, neginf=0.0)
        reward_T = paid_A.new_zeros(len(batch)).index_put((batch.final_tokens(),), paid_A)
        paid_LC, value_LC, mask_LC = (
            self.matrix(x_P) for x_P in (reward_T[self.token_P], value_P, torch.ones_like(value_P))
        )
        adv_LC = token_gae(paid_LC, value_LC, end_L, mask_LC, discount, gae_lambda)
        return adv_LC[self.leaf_P, self.column_P]
