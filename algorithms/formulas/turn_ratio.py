"""The clipped policy loss whose step is a turn.

Invariant: an action's advantages enter as two sums, of weight times A over the episodes in which A is positive and over
those in which it is negative, so that sharing a turn changes nothing.

Legend of the shape suffixes: T tokens, A actions = turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch

from agents.tree import Batch, Tensor
from algorithms.formulas.groups import turn_lengths
from algorithms.formulas.maths import bounded, clipped, sides, surrogate


class TurnRatio(StrEnum):
    """What is clipped: the probability ratio of a whole turn, its geometric mean per token, or that of each token."""

    TURN = "turn"
    TURN_MEAN = "turn_mean"
    TOKEN = "token"


@dataclass(frozen=True)
class TurnClip:
    """Settings of the clip of turn ratios."""

    ratio: TurnRatio = TurnRatio.TURN
    """The ratio that is clipped. For turns above 50 tokens, where ``turn`` is clipped too often, take another."""
    clip: float = 0.2
    """The ratio is clipped to [1 - clip, 1 + clip]. ``turn_mean`` moves far less: 3e-3 to 1e-2 suit it."""
    dual_clip: float = 3.0
    """Largest ratio that counts for a negative advantage; inf switches it off."""

    def turn_loss(
        self, batch: Batch, logp_T: Tensor, plus_A: Tensor, minus_A: Tensor, weight_A: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sum over turns of -weight min(rho A, clip(rho, 1 - clip, 1 + clip) A), dual-clipped; and the share clipped.

        rho is the ratio of a turn, the geometric mean of its tokens' ratios, or that of a token, over a turn's tokens
        of which ``token`` takes the mean [PPO, arXiv 1707.06347; dual clip, arXiv 1912.09729].
        """
        delta, length_A = logp_T - batch.old_logp_T, batch.per_action(torch.ones_like(logp_T)).clamp_min(1)
        plus, minus, weight = plus_A, minus_A, weight_A
        if self.ratio == TurnRatio.TOKEN:
            plus, minus, weight = (batch.to_tokens(x_A / length_A) for x_A in (plus, minus, weight))
        else:
            delta = batch.per_action(delta)
        if self.ratio == TurnRatio.TURN_MEAN:
            delta = delta / length_A
        delta, clips = bounded(delta), (self.clip, self.clip, self.dual_clip)
        return surrogate(delta, plus, minus, *clips).sum(), (weight * clipped(delta, plus, minus, *clips)).sum()

    def mean_turn_loss(self, batch: Batch, logp_T: Tensor, adv_A: Tensor, count_A: Tensor) -> tuple[Tensor, Tensor]:
        """`turn_loss` as a mean over turns, each taken by ``count_A`` episodes with one advantage for all."""
        weight_A = mean_weight(count_A * said(batch))
        return self.turn_loss(batch, logp_T, *sides(adv_A, weight_A), weight_A)


def said(batch: Batch) -> Tensor:
    """said_A: True for the turns of which a token is left, where a mask takes tokens out."""
    return turn_lengths(batch) > 0


def mean_weight(count: Tensor) -> Tensor:
    """What each turn weighs in a mean over turns, an entry of count c being c of them."""
    return count / count.sum().clamp_min(1).double()
