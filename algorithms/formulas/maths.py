"""Formulas that know no tree: importance ratios, the clipped surrogate, KL estimators, scaling, explained variance.

Invariant: pure functions of tensors, elementwise unless the docstring says otherwise; statistics are taken in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch

from agents.tree import Tensor
from algorithms.base import Acts, floats, require
from algorithms.moments import Moments as Moments
from algorithms.moments import mean_and_variance as mean_and_variance
from algorithms.moments import weighted_mean as weighted_mean

LOG_RATIO_MAX = 20.0
"""Log-ratios are clamped to this, in nats; beyond it the gradient is zero."""
SAME = 1e-8
"""Numbers that differ by no more than this are the same: their spread carries no signal."""


class KL(StrEnum):
    """Estimators of KL(policy || reference) from one sample. A plus takes the value of one and the gradient of k2."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"
    ABS = "abs"
    K1_PLUS = "k1+"
    K3_PLUS = "k3+"
    ABS_PLUS = "abs+"


class AdvantageScale(StrEnum):
    """How the advantages of a batch are scaled: as they are, divided by their deviation, or centred as well: always, or
    for ``lift`` where their mean is below 0. Such a mean pushes down what was sampled, and so up what nobody tried."""

    NONE = "none"
    STD = "std"
    LIFT = "lift"
    WHITEN = "whiten"


class NormalizeOver(StrEnum):
    """The episodes whose advantages are normalised together: of an update, as in the sources, or of a minibatch."""

    UPDATE = "update"
    MINIBATCH = "minibatch"


@dataclass(frozen=True)
class Normalized:
    """Settings of what advantages are normalised over, for algorithms that have ``normalize``."""

    ACTS: ClassVar[Acts] = {
        "normalize_over": (
            lambda a: getattr(a, "normalize", None) != AdvantageScale.NONE,
            "normalize std, lift or whiten",
        )
    }

    normalize_over: NormalizeOver = NormalizeOver.UPDATE
    """Episodes whose advantages are normalised together: those of the whole update, as in the source, or of each
    minibatch, as until version 0.2."""

    def over_update(self, normalises: bool) -> bool:
        return normalises and self.normalize_over == NormalizeOver.UPDATE


def bounded(log_ratio: Tensor) -> Tensor:
    """log(pi / pi_old) clamped to +-20 nats: exp of it stays finite, and the gradient outside is zero."""
    return log_ratio.clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)


def sides(adv: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(w A where A is positive, w A where it is negative): the loss of all who share a ratio needs their two sums."""
    return weight * adv.clamp_min(0), weight * adv.clamp_max(0)


def surrogate(log_ratio: Tensor, plus: Tensor, minus: Tensor, low: float, high: float, cap: float) -> Tensor:
    """-(S+ min(r, 1 + high) + S- min(cap, max(r, 1 - low))), the clipped loss of everyone who shares this ratio r.

    ``plus`` and ``minus`` are the weighted sums of the positive and of the negative advantages of those who share it.
    With one advantage A this is PPO's -min(r A, clip(r, 1 - low, 1 + high) A) [Schulman et al. 2017], dual-clipped at
    ``cap`` for A < 0 [Ye et al. 2020]. It is linear in the two sums, which is why a token that belongs to many episodes
    needs only these two numbers.
    """
    ratio = log_ratio.exp()
    return -(plus * ratio.clamp(max=1 + high) + minus * ratio.clamp(1 - low, cap))


def soft_surrogate(log_ratio: Tensor, plus: Tensor, minus: Tensor, tau_plus: float, tau_minus: float) -> Tensor:
    """-(S+ f(r; tau+) + S- f(r; tau-)) with f(r; tau) = 4 / tau sigmoid(tau (r - 1)) [SAPO, arXiv 2511.20347].

    A smooth gate in place of the clip: its slope is 1 at r = 1 and fades on both sides.
    """
    away = log_ratio.exp() - 1
    return -4 * (plus / tau_plus * torch.sigmoid(tau_plus * away) + minus / tau_minus * torch.sigmoid(tau_minus * away))


def clipped(log_ratio: Tensor, plus: Tensor, minus: Tensor, low: float, high: float, cap: float) -> Tensor:
    """True where the clip takes the gradient away from someone who shares this ratio."""
    ratio = log_ratio.detach().exp()
    return ((plus > 0) & (ratio > 1 + high)) | ((minus < 0) & ((ratio < 1 - low) | (ratio > cap)))


def cispo(log_ratio: Tensor, logp: Tensor, plus: Tensor, minus: Tensor, low: float, high: float) -> Tensor:
    """-(S+ + S-) sg(clip(r, 1 - low, 1 + high)) log pi: no token stops teaching [CISPO, arXiv 2506.13585].

    The gradient is REINFORCE's, times a ratio that is bounded and held constant.
    """
    return -(plus + minus) * log_ratio.detach().exp().clamp(1 - low, 1 + high) * logp


def kl_divergence(logp: Tensor, ref_logp: Tensor, estimator: KL) -> Tensor:
    """KL(pi || ref) from tokens sampled from pi, with x = log pi - log ref [Schulman, "Approximating KL divergence"].

    k1 = x; k2 = x^2 / 2; k3 = e^-x + x - 1 with x clamped to +-20 and the result to +-10; abs = |x|.
    """
    x = logp - ref_logp
    if estimator.endswith("+"):
        value, slope = kl_divergence(logp, ref_logp, KL(estimator.removesuffix("+"))), x.square() / 2
        return slope - slope.detach() + value.detach()
    if estimator == KL.K1:
        return x
    if estimator == KL.K2:
        return x.square() / 2
    if estimator == KL.ABS:
        return x.abs()
    x = bounded(x)
    return (torch.exp(-x) + x - 1).clamp(-10, 10)


def reward_less_kl(reward: Tensor, logp: Tensor, ref_logp: Tensor, coef: float) -> Tensor:
    """r - coef (log pi - log ref) for each token: the divergence as a cost in the reward."""
    return reward - coef * (logp - ref_logp)


def squared_error(value: Tensor, target: Tensor, old_value: Tensor, clip: float) -> Tensor:
    """max((V - T)^2, (clip(V, V_old - c, V_old + c) - T)^2), PPO's value loss; c = inf is the plain square."""
    kept = torch.minimum(torch.maximum(value, old_value - clip), old_value + clip)
    return torch.maximum((value - target).square(), (kept - target).square())


STD_FLOOR = 0.1
"""Smallest deviation of advantages that is divided by, where no other is named. In a batch in which nearly all went
well they are mostly the critic's error, and dividing them by their tiny deviation can undo what was learned."""


def varies(x: Tensor, weight: Tensor, over: Moments | None = None) -> bool:
    """Whether the entries with weight, or the numbers of ``over``, differ: else their spread carries no signal."""
    seen = x[weight > 0]
    return bool(over.high - over.low > SAME if over else seen.numel() > 0 and seen.max() - seen.min() > SAME)


def scale_advantage(
    adv: Tensor, weight: Tensor, how: AdvantageScale, floor: float | None = 0.0, over: Moments | None = None
) -> Tensor:
    """A / sqrt(var + 1e-8) over the batch, centred first for ``whiten``, and for ``lift`` where the mean is below 0; as
    it is where all advantages are the same.

    A deviation below ``floor`` (STD_FLOOR where it is None) counts as ``floor``. Mean and deviation are those of
    ``over``, where the batch is a part of what is normalised together.
    """
    least = STD_FLOOR if floor is None else floor
    if how == AdvantageScale.NONE:
        return adv
    if not varies(adv, weight, over):
        return adv
    mean, variance = mean_and_variance(adv, weight) if over is None else (over.mean, over.variance)
    shift = {AdvantageScale.WHITEN: mean, AdvantageScale.LIFT: mean.clamp_max(0)}.get(how, 0.0)
    return (adv - shift) * (variance.clamp_min(least**2) + 1e-8).rsqrt()


def require_floor(floor: float | None, how: AdvantageScale) -> None:
    """Raises ValueError unless `scale_advantage` takes ``floor``, and it acts; for the hyper-parameter std_floor."""
    require((floor or 0) >= 0, f"std_floor must not be negative, but is {floor}")
    require(floor is None or how != AdvantageScale.NONE, "std_floor only works with normalize std, lift or whiten")


def critic_stats(value: Tensor, adv: Tensor, target: Tensor, weight: Tensor) -> dict[str, float]:
    """What is logged of a critic: its mean, the deviation of the advantages, and what it explains of its targets."""
    return floats(
        value=weighted_mean(value, weight.double()),
        advantage_std=mean_and_variance(adv, weight)[1].sqrt(),
        explained_variance=explained_variance(value, target, weight),
    )


def explained_variance(value: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """1 - Var(target - value) / Var(target); 0 where the targets are all the same."""
    return Explained.of(target - value, target, weight).share


@dataclass(frozen=True)
class Explained:
    """How much of some targets a critic explains. Those of the parts add up."""

    left: Moments
    """Of what the values leave of the targets."""
    target: Moments

    @classmethod
    def of(cls, left: Tensor, target: Tensor, weight: Tensor) -> Explained:
        return cls(Moments.of(left, weight), Moments.of(target, weight))

    def __add__(self, other: Explained) -> Explained:
        return Explained(self.left + other.left, self.target + other.target)

    @property
    def share(self) -> Tensor:
        """1 - Var(left) / Var(target); 0 where the targets are all the same."""
        left, total = self.left.variance, self.target.variance
        return torch.where(total > SAME**2, 1 - left / total.clamp_min(SAME**2), 0)
