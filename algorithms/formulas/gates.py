"""The policy loss of GRPO's family: which ratio is bounded, and how.

Invariant: the advantages enter as sums of weight times advantage over the episodes that share a ratio, the positive and
the negative apart, so that sharing a token changes nothing.

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch

from agents.tree import Batch, Tensor
from algorithms.base import Acts, require
from algorithms.formulas.groups import lengths
from algorithms.formulas.maths import bounded, cispo, soft_surrogate, weighted_mean
from algorithms.formulas.policy_loss import TokenClip


class Ratio(StrEnum):
    """What is clipped: the ratio of each token, the geometric mean over an episode, or one product per episode."""

    TOKEN = "token"
    SEQUENCE_MEAN = "sequence_mean"
    SEQUENCE = "sequence"


class Gate(StrEnum):
    """How a ratio far from 1 stops teaching: at once, smoothly (SAPO), or never, being bounded and constant (CISPO).

    ``geometric`` clips each token's log-ratio before their mean is taken (GMPO).
    """

    CLIP = "clip"
    SOFT = "soft"
    CISPO = "cispo"
    GEOMETRIC = "geometric"


@dataclass(frozen=True)
class GroupCredit:
    """Weights of the loss. ``plus``, ``minus`` and ``count`` are per token for the token ratio, else per episode."""

    adv_L: Tensor
    """Advantage of each episode; without a baseline the mean over its tokens."""
    plus: Tensor
    """Sum of weight times advantage over the episodes that share it, where the advantage is positive."""
    minus: Tensor
    """The same where it is negative."""
    count: Tensor
    """How many episodes share it."""
    weight_T: Tensor
    """Sum of the weights of the episodes that share a token."""
    adv_A: Tensor | None = None
    """Mean advantage of each turn, where the turns of an episode differ."""


@dataclass(frozen=True)
class Gated(TokenClip):
    """Settings of the ratio and of what bounds it."""

    ACTS: ClassVar[Acts] = {
        "tau_plus": (lambda a: a.gate == Gate.SOFT, "gate soft"),
        "tau_minus": (lambda a: a.gate == Gate.SOFT, "gate soft"),
        "clip_high": (lambda a: a.gate != Gate.SOFT, "another gate than soft"),
        "dual_clip": (lambda a: a.gate == Gate.CLIP, "gate clip"),
    }

    ratio: Ratio = Ratio.TOKEN
    """The ratio that is clipped: of each token, the episode's mean (GSPO), or the episode's product."""
    gate: Gate = Gate.CLIP
    """``clip`` obeys clip_low, clip_high and dual_clip; ``cispo`` the first two, and so does ``geometric``, of which
    they bound the log-ratio (the authors: 0.4); ``soft`` obeys tau_plus and tau_minus."""
    tau_plus: float = 1.0
    """How fast the soft gate closes for tokens with a positive advantage."""
    tau_minus: float = 1.05
    """How fast it closes for tokens with a negative advantage."""

    def check_gate(self) -> None:
        """Raises ValueError for settings that do not fit each other."""
        require(self.tau_plus > 0, f"tau_plus must be above 0, not {self.tau_plus}")
        require(self.tau_minus > 0, f"tau_minus must be above 0, not {self.tau_minus}")
        require(
            self.gate != Gate.GEOMETRIC or self.ratio == Ratio.SEQUENCE_MEAN,
            f"gate geometric is for the mean ratio of an episode: ratio must be sequence_mean, not {self.ratio}",
        )

    def gated(self, batch: Batch, logp_T: Tensor, credit: GroupCredit) -> tuple[Tensor, Tensor]:
        """(loss, share of the ratios that are bounded)."""
        delta_T = logp_T - batch.old_logp_T
        if self.gate == Gate.GEOMETRIC:
            return self.geometric_loss(batch, bounded(delta_T), credit)
        delta = bounded(delta_T if self.ratio == Ratio.TOKEN else self.per_episode(batch, delta_T))
        if self.gate == Gate.CISPO:
            return self.cispo_loss(batch, delta, logp_T, credit)
        return self.policy_loss(delta, credit)

    def per_episode(self, batch: Batch, delta_T: Tensor) -> Tensor:
        """log of the episode's ratio: the sum over its tokens (the product of their ratios), or the mean (GSPO)."""
        delta_L = batch.per_episode(batch.per_action(delta_T))
        return delta_L / lengths(batch).clamp_min(1) if self.ratio == Ratio.SEQUENCE_MEAN else delta_L

    def geometric_loss(self, batch: Batch, delta_T: Tensor, credit: GroupCredit) -> tuple[Tensor, Tensor]:
        """-A exp(mean over tokens of the clipped log-ratios), summed over episodes [GMPO, arXiv 2507.20673].

        A token's log-ratio is clipped at clip_high where the episode's advantage is positive, at -clip_low where it is
        negative; and the share of tokens that is.
        """
        length_L, up_L = lengths(batch).clamp_min(1), credit.adv_L > 0
        fixed_T = delta_T.detach()

        def per_episode(high_T: Tensor, low_T: Tensor) -> Tensor:
            high_L, low_L = (batch.per_episode(batch.per_action(x_T)) for x_T in (high_T, low_T))
            return torch.where(up_L, high_L, low_L) / length_L

        mean_L = per_episode(delta_T.clamp(max=self.clip_high), delta_T.clamp(min=-self.clip_low))
        shut_L = per_episode((fixed_T > self.clip_high).double(), (fixed_T < -self.clip_low).double())
        loss_L = -(credit.plus + credit.minus) * mean_L.exp()
        return loss_L.sum(), weighted_mean(shut_L * (credit.adv_L != 0), credit.count.double())

    def cispo_loss(self, batch: Batch, delta: Tensor, logp_T: Tensor, credit: GroupCredit) -> tuple[Tensor, Tensor]:
        """The likelihood, weighted by the bounded ratio, and the share of ratios that are bounded."""
        logp, ratio = logp_T, delta.detach().exp()
        if self.ratio != Ratio.TOKEN:
            logp = batch.per_episode(batch.per_action(logp_T)) / lengths(batch).clamp_min(1)
        far = (ratio < 1 - self.clip_low) | (ratio > 1 + self.clip_high)
        loss = cispo(delta, logp, credit.plus, credit.minus, self.clip_low, self.clip_high)
        return loss.sum(), weighted_mean(far.double(), credit.count.double())

    def policy_loss(self, delta: Tensor, credit: GroupCredit) -> tuple[Tensor, Tensor]:
        """The surrogate of the log-ratios ``delta``, and the share of them that is clipped."""
        if self.gate == Gate.SOFT:
            loss = soft_surrogate(delta, credit.plus, credit.minus, self.tau_plus, self.tau_minus)
            return loss.sum(), loss.new_zeros(())
        loss, shut = self.surrogate(delta, credit.plus, credit.minus)
        return loss, weighted_mean(shut, credit.count.double())
