"""PACS: the outcome is a label, and the policy's own log-ratio within its group is the logit that predicts it.

    score_i = beta (log pi - log pi_old), summed over the tokens of episode i
    A_i     = n / (n - 1) (score_i - mean of the group)
    loss    = mean_i w_i [softplus(A_i) - y_i A_i]

The gradient goes through A into every episode of the group. At the first step it is RLOO's; later sigmoid(A_i), the
implicit critic, takes it away from episodes that differ enough. Source: "Implicit Actor Critic Coupling via a
Supervised Learning Framework for RLVR" and its authors' code. y is the environment's verdict, never a reward's sign:
a label outside 0..1 would make the loss unbounded below. Log-ratios are not bounded: no exponential is taken of them,
and the slope of the loss in A_i is at most w_i.

An episode's score is a sum over its path, so that tokens which episodes share get the gradient of all of them.

Legend of the shape suffixes: G groups = trees, T tokens, L leaves = episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.base import Acts, Algorithm, Loss, Needs, floats, reference_logp, require, without_gradient
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.groups import group_mean, group_sum, lengths, spread
from algorithms.formulas.maths import SAME, weighted_mean
from algorithms.formulas.policy_loss import KLPenalty


class RewardMethod(StrEnum):
    """What an episode's score is, times beta."""

    LOG_RATIO = "log_ratio"
    """The log-ratio summed over its tokens (the authors' method 1)."""
    MEAN_LOGP = "mean_logp"
    """The mean log-probability of its tokens, without an anchor (the authors' method 2)."""
    MEAN_RATIO = "mean_ratio"
    """The mean log-ratio of its tokens."""


class Anchor(StrEnum):
    """Which policy the log-ratio is taken against: the one that sampled, or the reference (LoRA off)."""

    OLD = "old"
    REFERENCE = "reference"


class Estimator(StrEnum):
    """How scores become logits: compared with the others, with the whole group, or as they are."""

    RLOO = "rloo"
    GRPO = "grpo"
    NAIVE = "naive"


class Spread(StrEnum):
    """What the estimator grpo divides by."""

    NONE = "none"
    FLOOR = "floor"
    """The group's deviation, a constant of at least 0.01: a departure from the authors' code."""
    SOURCE = "source"
    """The deviation + 1e-6 with its gradient, as in the authors' code: at the first step it multiplies by a million."""


class Weighting(StrEnum):
    """What an episode weighs."""

    NONE = "none"
    QUESTION = "question"
    """Right and wrong episodes of a group weigh the same together."""
    ONLY_POSITIVE = "only_positive"
    ONLY_NEGATIVE = "only_negative"


STD_FLOOR = 1e-2
STD_EPS = 1e-6


@dataclass(frozen=True)
class LabelCredit:
    """What stays the same through the epochs of an update."""

    label_L: Tensor
    """1 solved, 0 not."""
    weight_L: Tensor
    count_L: Tensor
    """How many episodes a leaf is; 0 for those that are left out."""
    length_L: Tensor
    unlabelled: float
    """Share of the episodes that are left out."""


@dataclass(frozen=True)
class PACS(KLPenalty, Algorithm[LabelCredit]):
    """PACS: the policy's own log-ratios, relative to the group, are trained to classify success.

    loss = cross-entropy between the verdicts and the policy's group-relative scores + kl_coef KL.
    """

    ACTS: ClassVar[Acts] = {
        "spread": (lambda a: a.estimator == Estimator.GRPO, "estimator grpo"),
        "anchor": (lambda a: a.reward_method != RewardMethod.MEAN_LOGP, "a reward_method that is a ratio"),
    }

    group: int = 8
    """Episodes per task."""
    beta: float = 1.0
    """Scale of the scores: the larger, the sooner the gradient of a well separated episode vanishes."""
    reward_method: RewardMethod = RewardMethod.LOG_RATIO
    """Score of an episode; over long episodes the sum saturates quickly, and ``mean_ratio`` does not."""
    anchor: Anchor = Anchor.OLD
    """Policy that the log-ratio is taken against."""
    estimator: Estimator = Estimator.RLOO
    """How scores become logits."""
    spread: Spread = Spread.FLOOR
    """Divisor of the estimator ``grpo``; the others ignore it."""
    weight: Weighting = Weighting.QUESTION
    """Weight of an episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.group >= 2 or self.estimator == Estimator.NAIVE,
            f"estimator {self.estimator} needs a group of at least 2: raise group, or take the estimator naive",
        )
        require(self.beta > 0, f"beta must be above 0, not {self.beta}")

    @property
    def needs(self) -> Needs:
        ratio = self.reward_method != RewardMethod.MEAN_LOGP
        anchored = ratio and self.anchor == Anchor.REFERENCE
        return Needs(reference=self.kl_coef > 0 or anchored, ratios=ratio and not anchored)

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.EPISODE, Methodology.MONTE_CARLO)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> LabelCredit:
        length_L = lengths(batch)
        told_L = ~batch.fault_L & (length_L > 0)
        known_L = told_L & (batch.success_L >= 0) & batch.return_L.isfinite()
        count_L = batch.count_L * known_L
        if self.estimator != Estimator.NAIVE:  # a lone survivor of its group has nothing to be compared with
            n_G = group_sum(count_L, batch.tree_L, batch.trees)
            count_L = torch.where(n_G[batch.tree_L] > 1, count_L, 0)
        label_L = (batch.success_L == 1).double()
        played = (batch.count_L * told_L).sum()
        unlabelled = 1 - float(count_L.sum() / played.clamp_min(1)) if played else 0.0
        weight_L = label_weight(label_L, count_L, batch.tree_L, batch.trees, self.weight)
        return LabelCredit(label_L, weight_L, count_L.double(), length_L, unlabelled)

    def loss(self, batch: Batch, new: Forward, credit: LabelCredit, /) -> Loss:
        score_L = self.score(batch, new.logp_T, credit)
        adv_L = self.logit(batch, score_L, credit)
        policy = label_loss(adv_L, credit)
        shown_T = batch.to_tokens(batch.sum_below(credit.count_L))
        right_L = ((adv_L > 0) == (credit.label_L > 0.5)).double()
        mean_G = group_mean(credit.label_L, credit.count_L, batch.tree_L, batch.trees)
        stats = floats(
            policy=policy,
            score=weighted_mean(score_L, credit.count_L),
            label=weighted_mean(credit.label_L, credit.count_L),
            told_apart=weighted_mean(right_L, credit.count_L),
            zero_groups=float(((mean_G == 0) | (mean_G == 1)).sum()) / max(batch.trees, 1),
            unlabelled=credit.unlabelled,
        )
        return self.penalised(policy, batch, new, shown_T, stats, mean=True)

    def score(self, batch: Batch, logp_T: Tensor, credit: LabelCredit) -> Tensor:
        """score_L: what the policy thinks of each episode; with a gradient to every token it said in it."""
        if self.reward_method == RewardMethod.MEAN_LOGP:
            score_T = logp_T
        elif self.anchor == Anchor.OLD:
            score_T = logp_T - batch.old_logp_T
        else:
            score_T = logp_T - reference_logp(batch)
        score_L = self.beta * batch.per_episode(batch.per_action(score_T.double()))
        if self.reward_method != RewardMethod.LOG_RATIO:
            score_L = score_L / credit.length_L.clamp_min(1)
        return torch.where(credit.count_L > 0, score_L, 0)

    def logit(self, batch: Batch, score_L: Tensor, credit: LabelCredit) -> Tensor:
        """A_L: the score within its group, with the gradient through all of the group."""
        if self.estimator == Estimator.NAIVE:
            return score_L
        count_L, tree_L = credit.count_L, batch.tree_L
        n_L = group_sum(count_L, tree_L, batch.trees)[tree_L]
        away_L = score_L - group_mean(score_L, count_L, tree_L, batch.trees)[tree_L]
        # One label and one score: there is nothing to tell apart, not even by rounding.
        same_G = [spread(x_L, count_L, tree_L, batch.trees) <= SAME for x_L in (score_L.detach(), credit.label_L)]
        away_L = torch.where((same_G[0] & same_G[1])[tree_L], 0, away_L)
        bessel_L = n_L / (n_L - 1).clamp_min(1)
        if self.estimator == Estimator.RLOO:
            return away_L * bessel_L
        if self.spread == Spread.NONE:
            return away_L
        variance_L = group_mean(away_L.square(), count_L, tree_L, batch.trees)[tree_L] * bessel_L
        std_L = torch.where(variance_L > 0, variance_L, 1).sqrt() * (variance_L > 0)  # slope 0, not NaN, at 0
        if self.spread == Spread.FLOOR:
            return away_L / std_L.detach().clamp_min(STD_FLOOR)
        return away_L / (std_L + STD_EPS)

    def action_advantage(self, batch: Batch, credit: LabelCredit) -> Tensor:
        """adv_A: -d loss / d score under the old policy, times the number of episodes; the mean over those below."""
        with torch.enable_grad():
            score_L = self.score(batch, batch.old_logp_T, credit).detach().requires_grad_()
            (slope_L,) = torch.autograd.grad(label_loss(self.logit(batch, score_L, credit), credit), score_L)
        push_L = -slope_L * credit.count_L.sum() / credit.count_L.clamp_min(1)
        return batch.below(push_L)


def label_loss(adv_L: Tensor, credit: LabelCredit) -> Tensor:
    """mean over episodes of w [softplus(A) - y A], the binary cross-entropy with logit A; 0 without an episode."""
    return weighted_mean(
        credit.weight_L * (torch.nn.functional.softplus(adv_L) - credit.label_L * adv_L), credit.count_L
    )


def label_weight(label_L: Tensor, count_L: Tensor, tree_L: Tensor, groups: int, how: Weighting) -> Tensor:
    """w_L; for ``question`` n / (2 n_y) with the n_y episodes of the group that have this label, 1 if all have it."""
    if how == Weighting.NONE:
        return torch.ones_like(label_L)
    if how != Weighting.QUESTION:
        return (label_L == (how == Weighting.ONLY_POSITIVE)).double()
    share_L = group_mean(label_L, count_L.double(), tree_L, groups)[tree_L]
    share_L = torch.where(label_L == 1, share_L, 1 - share_L)
    return torch.where((share_L > 0) & (share_L < 1), 0.5 / share_L.clamp_min(1e-12), 1)
