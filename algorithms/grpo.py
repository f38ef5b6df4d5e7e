"""GRPO and its relatives: several episodes of one task, each judged by how it did within its group. No critic.

A token that several episodes share enters the loss once per episode. That is exact with three numbers per token, summed
over the episodes below it: the positive weighted advantages, the negative ones, and the weights (for the KL).

    GRPO         the defaults (arXiv 2402.03300 with DAPO's token mean, 2503.14476)
    DAPO         clip_high 0.28, drop_equal, dual_clip inf; no sampling anew (arXiv 2503.14476)
    Dr. GRPO     scale none, aggregation seq-mean-token-sum-norm (arXiv 2503.20783)
    RLOO         baseline leave_one_out, scale none, ratio sequence (arXiv 2402.14740)
    REINFORCE++  baseline none, scale tokens, group 1; with baseline: baseline mean, scale tokens (arXiv 2501.03262)
    GSPO         ratio sequence_mean, clip_low 3e-4, clip_high 4e-4 (arXiv 2507.18071)
    LUSPO        the same with aggregation seq-mean-token-sum (arXiv 2602.05261)
    SAPO         gate soft, aggregation seq-mean-token-mean (arXiv 2511.20347)
    CISPO        gate cispo, clip_low 1, clip_high well above 0.2 (arXiv 2506.13585)

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes, P rows = turns of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from agents.tree import Batch, Forward
from algorithms.base import Algorithm, Loss, Needs, Sampling, floats, require, require_choice, without_gradient
from algorithms.formulas.groups import (
    Aggregation,
    Baseline,
    Scale,
    group_advantage,
    lengths,
    teaches,
    token_weight,
    whitened,
    zero_groups,
)
from algorithms.formulas.maths import bounded, cispo, soft_surrogate, weighted_mean
from algorithms.formulas.policy_loss import KLPenalty, TokenClip, sums_over_episodes
from algorithms.formulas.ranges import require_company, require_usual
from algorithms.formulas.returns import TurnRows

if TYPE_CHECKING:
    from torch import Tensor


class Ratio(StrEnum):
    """What is clipped: the ratio of each token, the geometric mean over an episode, or one product per episode."""

    TOKEN = "token"
    SEQUENCE_MEAN = "sequence_mean"
    SEQUENCE = "sequence"


class Gate(StrEnum):
    """How a ratio far from 1 stops teaching: at once, smoothly (SAPO), or never, being bounded and constant (CISPO)."""

    CLIP = "clip"
    SOFT = "soft"
    CISPO = "cispo"


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
class GRPO(TokenClip, KLPenalty, Algorithm[GroupCredit]):
    """GRPO: every token has the advantage of its episode over the group of its task; no critic.

    loss = clipped surrogate of the group advantages + kl_coef KL.
    """

    group: int = 8
    """Episodes per task."""
    ratio: Ratio = Ratio.TOKEN
    """The ratio that is clipped: of each token, the episode's mean (GSPO), or the episode's product."""
    baseline: Baseline = Baseline.MEAN
    """Baseline of a return; ``none`` credits each turn with the rewards from there on."""
    scale: Scale = Scale.GROUP
    """Divisor of the advantage."""
    discount: float = 1.0
    """Discount per turn, for baseline none; the others compare whole episodes."""
    drop_equal: bool = False
    """Leave groups of equal returns, which give no gradient, out of the loss's means too (DAPO)."""
    std_eps: float = 1e-6
    """Added to the standard deviation."""
    aggregation: Aggregation | None = None
    """How token losses become one number; None is token-mean for the token ratio, else seq-mean-token-mean."""
    length_norm: float = 512.0
    """The constant length that seq-mean-token-sum-norm divides by, for instance the token limit of an episode."""
    gate: Gate = Gate.CLIP
    """``clip`` obeys clip_low, clip_high and dual_clip; ``cispo`` the first two; ``soft`` tau_plus and tau_minus."""
    tau_plus: float = 1.0
    """How fast the soft gate closes for tokens with a positive advantage."""
    tau_minus: float = 1.05
    """How fast it closes for tokens with a negative advantage."""
    kl_unbiased: bool = False
    """Weigh each token's estimate by its ratio, which makes it unbiased after the first update (arXiv 2512.02556)."""

    def __post_init__(self) -> None:
        require_usual(self)
        require_choice(self.aggregation or Aggregation.TOKEN_MEAN, Aggregation)
        alone = self.baseline == Baseline.NONE
        if not alone:
            require_company(self.group)
        require(
            not alone or self.scale in (Scale.NONE, Scale.TOKENS),
            f"baseline none compares nothing within a group: scale must be none or tokens, not {self.scale}",
        )
        require(not alone or not self.drop_equal, "drop_equal needs groups: take another baseline than none")
        require(
            not alone or self.ratio == Ratio.TOKEN,
            f"baseline none gives each turn its own advantage: ratio must be token, not {self.ratio}",
        )
        require(self.tau_plus > 0, f"tau_plus must be above 0, not {self.tau_plus}")
        require(self.tau_minus > 0, f"tau_minus must be above 0, not {self.tau_minus}")

    @property
    def needs(self) -> Needs:
        return Needs(reference=self.kl_coef > 0)

    @property
    def sampling(self) -> Sampling:
        return Sampling(group=self.group)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> GroupCredit:
        length_L = lengths(batch)
        count_L = batch.count_L * (~batch.fault_L & (length_L > 0))
        if self.baseline == Baseline.NONE:
            return self.weigh_turns(batch, length_L, count_L)
        group_L = (batch.return_L, count_L, batch.tree_L)
        adv_L = group_advantage(*group_L, self.baseline, self.scale, self.std_eps)
        if self.scale == Scale.TOKENS:
            adv_L = whitened(adv_L, count_L * batch.return_L.isfinite() * length_L) * teaches(*group_L)
        if self.drop_equal:
            count_L = count_L * teaches(*group_L)
        return self.weigh(batch, adv_L, length_L, count_L)

    def action_advantage(self, batch: Batch, credit: GroupCredit) -> Tensor:
        return batch.below(credit.adv_L) if credit.adv_A is None else credit.adv_A

    def token_weight(self, length_L: Tensor, count_L: Tensor) -> Tensor:
        """w_L: what one token of all the episodes of a leaf weighs."""
        mode = self.aggregation
        if mode is None:
            mode = Aggregation.TOKEN_MEAN if self.ratio == Ratio.TOKEN else Aggregation.SEQ_MEAN_TOKEN_MEAN
        return count_L * token_weight(mode, length_L, count_L, self.length_norm)

    def weigh(self, batch: Batch, adv_L: Tensor, length_L: Tensor, count_L: Tensor) -> GroupCredit:
        """The weights of the loss for given advantages: aggregation and counts, summed over who shares a token."""
        weight_L = self.token_weight(length_L, count_L)
        if self.ratio == Ratio.TOKEN:
            sums = sums_over_episodes(batch, adv_L, weight_L, count_L)
            return GroupCredit(adv_L, sums.plus_T, sums.minus_T, sums.count_T, sums.weight_T)
        plus_L, minus_L = weight_L * adv_L.clamp_min(0), weight_L * adv_L.clamp_max(0)
        weight_T = batch.to_tokens(batch.sum_below(weight_L))
        return GroupCredit(adv_L, plus_L * length_L, minus_L * length_L, count_L, weight_T)

    def weigh_turns(self, batch: Batch, length_L: Tensor, count_L: Tensor) -> GroupCredit:
        """The same for what an episode paid from each turn on, in which those who share a turn differ."""
        rows = TurnRows.of(batch, count_L)
        actions = batch.state_A.numel()
        scored_P = rows.count_P * batch.return_L.isfinite()[rows.leaf_P]
        return_P = torch.where(scored_P > 0, rows.rest(batch.reward_A[rows.action_P].double(), self.discount), 0)
        length_P = batch.per_action(torch.ones_like(batch.old_logp_T, dtype=torch.float64))[rows.action_P]
        adv_P = whitened(return_P, scored_P * length_P) if self.scale == Scale.TOKENS else return_P
        weight_P = self.token_weight(length_L, count_L)[rows.leaf_P]

        def share(x_P: Tensor) -> Tensor:
            return batch.to_tokens(rows.per_action(x_P, actions))

        mean_L = torch.zeros_like(length_L).index_add(0, rows.leaf_P, adv_P * length_P) / length_L.clamp_min(1)
        mean_A = rows.per_action(adv_P * rows.count_P, actions) / rows.per_action(rows.count_P, actions).clamp_min(1)
        sides = (share(weight_P * adv_P.clamp_min(0)), share(weight_P * adv_P.clamp_max(0)))
        return GroupCredit(mean_L, *sides, share(rows.count_P), share(weight_P), mean_A)

    def loss(self, batch: Batch, new: Forward, credit: GroupCredit, /) -> Loss:
        delta_T = new.logp_T - batch.old_logp_T
        delta = bounded(delta_T if self.ratio == Ratio.TOKEN else self.per_episode(batch, delta_T))
        if self.gate == Gate.CISPO:
            policy, clip_fraction = self.cispo_loss(batch, delta, new.logp_T, credit)
        else:
            policy, clip_fraction = self.policy_loss(delta, credit)
        scale_T = bounded(delta_T).exp() if self.kl_unbiased else None
        total, kl = self.penalised(policy, batch, new, credit.weight_T, scale_T=scale_T)
        stats = floats(
            policy=policy,
            clip_fraction=clip_fraction,
            entropy=weighted_mean(new.entropy_T, credit.weight_T),
            zero_groups=zero_groups(batch, credit.adv_L),
        )
        return Loss(total, stats | kl)

    def per_episode(self, batch: Batch, delta_T: Tensor) -> Tensor:
        """log of the episode's ratio: the sum over its tokens (the product of their ratios), or the mean (GSPO)."""
        delta_L = batch.per_episode(batch.per_action(delta_T))
        return delta_L / lengths(batch).clamp_min(1) if self.ratio == Ratio.SEQUENCE_MEAN else delta_L

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
            return loss.sum(), torch.zeros(())
        loss, shut = self.surrogate(delta, credit.plus, credit.minus)
        return loss, weighted_mean(shut, credit.count.double())
