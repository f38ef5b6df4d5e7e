"""The clipped policy loss over tokens and the divergence from the reference, with their settings.

A token that several episodes share enters the loss once per episode. That is exact with three sums per token over the
episodes below it: positive weighted advantages, negative ones, and weights.

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agents.tree import Batch, Forward, Tensor
from algorithms.base import Acts, Loss, Needs, floats, reference_logp
from algorithms.formulas.groups import Aggregation, token_weight
from algorithms.formulas.maths import KL, bounded, clipped, kl_divergence, sides, surrogate, weighted_mean


@dataclass(frozen=True)
class KLPenalty:
    """Settings of the divergence from the reference policy."""

    ACTS: ClassVar[Acts] = {"kl": (lambda a: a.kl_coef > 0, "kl_coef above 0")}

    kl_coef: float = 0.0
    """Weight of the KL divergence from the reference policy (LoRA off)."""
    kl: KL = KL.K3
    """Estimator of the KL divergence."""

    @property
    def needs(self) -> Needs:
        """Nothing but the reference, and that only where the divergence has a weight."""
        return Needs(reference=self.kl_coef > 0)

    def penalised(
        self,
        total: Tensor,
        batch: Batch,
        new: Forward,
        weight_T: Tensor,
        stats: dict[str, float],
        *,
        mean: bool = False,
        scale_T: Tensor | None = None,
    ) -> Loss:
        """total + kl_coef sum of w KL; with ``mean`` the weighted mean of KL itself is added.

        ``scale_T`` multiplies each token's estimate. Without a coefficient and a reference nothing is added. To
        ``stats`` come the weighted means of the entropy and of KL.
        """
        stats = stats | floats(entropy=weighted_mean(new.entropy_T, weight_T))
        if not self.kl_coef > 0 and batch.ref_logp_T is None:
            return Loss(total, stats)
        kl_T = kl_divergence(new.logp_T, reference_logp(batch), self.kl)
        if scale_T is not None:
            kl_T = kl_T * scale_T
        if mean:
            kl = weighted_mean(kl_T, weight_T)
            return Loss(total + self.kl_coef * kl, stats | floats(kl=kl))
        kl = weighted_mean(kl_T.detach(), weight_T)
        return Loss(total + self.kl_coef * (weight_T * kl_T).sum(), stats | floats(kl=kl))


@dataclass(frozen=True)
class TokenClip:
    """Settings of the clip of token ratios."""

    clip_low: float = 0.2
    """Below the ratio 1 - clip_low, a token with negative advantage has no gradient."""
    clip_high: float = 0.2
    """Above the ratio 1 + clip_high, a token with positive advantage has no gradient (DAPO: 0.28)."""
    dual_clip: float = 3.0
    """Largest ratio that counts for a negative advantage; inf switches it off."""

    def surrogate(self, log_ratio: Tensor, plus: Tensor, minus: Tensor) -> tuple[Tensor, Tensor]:
        """(sum of the clipped surrogate, 1 where the clip takes the gradient away), from bounded log-ratios."""
        sides = (plus, minus, self.clip_low, self.clip_high, self.dual_clip)
        return surrogate(log_ratio, *sides).sum(), clipped(log_ratio, *sides).double()


@dataclass(frozen=True)
class Aggregated:
    """Settings of the mean over tokens."""

    ACTS: ClassVar[Acts] = {
        "length_norm": (
            lambda a: a.aggregation == Aggregation.SEQ_MEAN_TOKEN_SUM_NORM,
            f"aggregation {Aggregation.SEQ_MEAN_TOKEN_SUM_NORM}",
        )
    }

    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    """How token losses become one number."""
    length_norm: float = 512.0
    """The constant length that seq-mean-token-sum-norm divides by, for example the token limit of an episode."""

    def weight(self, length: Tensor, count: Tensor) -> Tensor:
        """The weight of each token of the sequences of ``length`` tokens, of which there are ``count``."""
        return count * token_weight(self.aggregation, length, count, self.length_norm)


@dataclass(frozen=True)
class TokenSums:
    """Sums over the episodes that share a token."""

    plus_T: Tensor
    """Weight times advantage, where the advantage is positive."""
    minus_T: Tensor
    """The same where it is negative."""
    count_T: Tensor
    """Episodes."""
    weight_T: Tensor
    """Weights."""


@dataclass(frozen=True)
class TokenLoss(TokenClip, KLPenalty, Aggregated):
    """Settings of the whole loss over tokens."""

    def token_loss(self, batch: Batch, new: Forward, sums: TokenSums, stats: dict[str, float]) -> Loss:
        """Sum of the clipped surrogate plus the penalty; ``stats`` are added to its own."""
        policy, shut_T = self.surrogate(bounded(new.logp_T - batch.old_logp_T), sums.plus_T, sums.minus_T)
        own = floats(policy=policy, clip_fraction=weighted_mean(shut_T, sums.count_T.double()))
        return self.penalised(policy, batch, new, sums.weight_T, own | stats)


def sums_over_episodes(batch: Batch, adv_L: Tensor, weight_L: Tensor, count_L: Tensor) -> TokenSums:
    """The sums for advantages of whole episodes; ``weight_L`` is the weight of one token."""

    def share(x_L: Tensor) -> Tensor:
        return batch.to_tokens(batch.sum_below(x_L))

    return TokenSums(*map(share, (*sides(adv_L, weight_L), count_L, weight_L)))


def policy_moved(batch: Batch, logp_T: Tensor) -> float:
    """KL(old || new) per token: the mean of r - 1 - log r, r = new / old, over the sampled tokens of all episodes.

    Source: Schulman, "Approximating KL divergence", k3. No gradient.
    """
    count_T = batch.to_tokens(batch.count_A).double()
    return float(weighted_mean(kl_divergence(batch.old_logp_T, logp_T.detach(), KL.K3), count_T))
