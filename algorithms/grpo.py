"""GRPO and its relatives: several episodes of one task, each judged by how it did within its group. No critic.

A token that several episodes share enters the loss once per episode. That is exact with three numbers per token, summed
over the episodes below it: the positive weighted advantages, the negative ones, and the weights (for the KL).

    GRPO         the defaults (arXiv 2402.03300 with DAPO's token mean, 2503.14476)
    DAPO         clip_high 0.28, drop_equal, resample, dual_clip inf, overlong_max (arXiv 2503.14476)
    Dr. GRPO     scale none, aggregation seq-mean-token-sum-norm (arXiv 2503.20783)
    RLOO         baseline leave_one_out, scale none, ratio sequence (arXiv 2402.14740)
    REINFORCE++  baseline none, scale tokens, group 1, kl_in_reward; with baseline: baseline mean, scale tokens
                 (arXiv 2501.03262)
    OPO          baseline length, scale none (arXiv 2505.23585)
    pass@k       baseline second_best (arXiv 2508.10751)
    GMPO         gate geometric, ratio sequence_mean, clip_low and clip_high 0.4 (arXiv 2507.20673)
    GSPO         ratio sequence_mean, clip_low 3e-4, clip_high 4e-4 (arXiv 2507.18071)
    LUSPO        the same with aggregation seq-mean-token-sum (arXiv 2602.05261)
    SAPO         gate soft, aggregation seq-mean-token-mean (arXiv 2511.20347)
    CISPO        gate cispo, clip_low 1, clip_high well above 0.2 (arXiv 2506.13585)

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes, P rows = turns of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.base import (
    Acts,
    Algorithm,
    Loss,
    Needs,
    Sampling,
    floats,
    reference_logp,
    require,
    require_choice,
    require_company,
    without_gradient,
)
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.gates import Gate as Gate
from algorithms.formulas.gates import Gated, GroupCredit, Ratio
from algorithms.formulas.groups import (
    Aggregation,
    Baseline,
    Scale,
    best_advantage,
    group_advantage,
    length_weighted_advantage,
    lengths,
    overlong_penalty,
    teaches,
    token_weight,
    turn_lengths,
    whitened,
    zero_groups,
)
from algorithms.formulas.maths import (
    Moments,
    Normalized,
    bounded,
    reward_less_kl,
    sides,
)
from algorithms.formulas.policy_loss import Aggregated, KLPenalty, sums_over_episodes
from algorithms.formulas.returns import TurnRows


@dataclass(frozen=True)
class GRPO(Gated, KLPenalty, Normalized, Algorithm[GroupCredit]):
    """GRPO: every token has the advantage of its episode over the group of its task; no critic.

    loss = clipped surrogate of the group advantages + kl_coef KL.
    """

    ACTS: ClassVar[Acts] = {
        **Aggregated.ACTS,
        "discount": (lambda a: a.baseline == Baseline.NONE, "baseline none"),
        "clip_low": (
            lambda a: a.gate != Gate.SOFT and a.baseline != Baseline.SECOND_BEST,
            "another gate than soft, and a baseline under which some advantages are negative",
        ),
        "std_eps": (lambda a: a.scale in (Scale.GROUP, Scale.BATCH), "scale group or batch"),
        "normalize_over": (lambda a: a.scale in (Scale.BATCH, Scale.TOKENS), "scale batch or tokens"),
        "kl_unbiased": (lambda a: a.kl_coef > 0 and not a.kl_in_reward, "kl_coef above 0, in the loss"),
        "kl": (lambda a: a.kl_coef > 0 and not a.kl_in_reward, "kl_coef above 0, in the loss"),
        "kl_in_reward": (lambda a: a.kl_coef > 0, "kl_coef above 0"),
        "overlong_cache": (lambda a: a.overlong_max > 0, "overlong_max above 0"),
    }

    group: int = 8
    """Episodes per task."""
    baseline: Baseline = Baseline.MEAN
    """Baseline of a return; ``none`` credits each turn with the rewards from there on."""
    scale: Scale = Scale.GROUP
    """Divisor of the advantage."""
    discount: float = 1.0
    """Discount per turn, for baseline none; the others compare whole episodes."""
    drop_equal: bool = False
    """Leave groups of equal returns, which give no gradient, out of the loss's means too (DAPO)."""
    resample: int = 0
    """Times that an update draws other tasks in place of those whose episodes all have the same return, which it then
    leaves out (DAPO's dynamic sampling); their episodes count as played."""
    std_eps: float = 1e-6
    """Added to the standard deviation."""
    aggregation: Aggregation | None = None
    """How token losses become one number; None is token-mean for the token ratio, else seq-mean-token-mean."""
    length_norm: float = 512.0
    """The constant length that seq-mean-token-sum-norm divides by, for instance the token limit of an episode."""
    kl_in_reward: bool = False
    """Take the divergence from the rewards of each turn, as REINFORCE++ does, in place of adding it to the loss."""
    overlong_max: int = 0
    """Sampled tokens of an episode from which on its return is less by 1 (DAPO's overlong shaping); 0 is off."""
    overlong_cache: int = 0
    """Tokens before overlong_max in which that grows from 0."""
    kl_unbiased: bool = False
    """Weigh each token's estimate by its ratio, which makes it unbiased after the first update (arXiv 2512.02556)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_gate()
        require_choice(self.aggregation or Aggregation.TOKEN_MEAN, Aggregation)
        alone = self.baseline == Baseline.NONE
        if not alone:
            require_company(self.group)
        require(
            not alone or self.scale in (Scale.NONE, Scale.TOKENS),
            f"baseline none compares nothing within a group: scale must be none or tokens, not {self.scale}",
        )
        require(not alone or not self.drop_equal, "drop_equal needs groups: take another baseline than none")
        require(not alone or not self.resample, "resample needs groups: take another baseline than none")
        require(self.resample >= 0, f"resample must not be negative, but is {self.resample}")
        require(
            not alone or self.ratio == Ratio.TOKEN,
            f"baseline none gives each turn its own advantage: ratio must be token, not {self.ratio}",
        )
        require(
            not self.kl_in_reward or alone,
            "kl_in_reward takes the divergence from what each turn was paid, and a group compares episodes: set "
            "baseline none",
        )
        require(
            self.baseline != Baseline.LENGTH or self.scale == Scale.NONE,
            f"baseline length is OPO's, which divides by nothing: scale must be none, not {self.scale}",
        )
        require(
            self.baseline != Baseline.SECOND_BEST or self.scale in (Scale.GROUP, Scale.NONE),
            f"with baseline second_best scale must be group or none, not {self.scale}",
        )
        shaped = self.overlong_max > 0
        require(
            not shaped or 1 <= self.overlong_cache <= self.overlong_max,
            f"overlong_cache must lie in 1..{self.overlong_max}, overlong_max, not {self.overlong_cache}",
        )
        require(self.overlong_max >= 0, f"overlong_max must not be negative, but is {self.overlong_max}")
        require(
            not (shaped and alone), "overlong_max shapes returns of whole episodes: take another baseline than none"
        )

    @property
    def needs(self) -> Needs:
        return Needs(reference=self.kl_coef > 0, moments=self.over_update(self.scale in (Scale.BATCH, Scale.TOKENS)))

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.EPISODE, Methodology.MONTE_CARLO)

    @property
    def sampling(self) -> Sampling:
        return Sampling(group=self.group, resample=self.resample)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> GroupCredit:
        return self.credited(batch)

    @without_gradient
    def scaled(self, batch: Batch, credit: GroupCredit, over: Moments) -> GroupCredit:
        return self.credited(batch, over)

    def credited(self, batch: Batch, over: Moments | None = None) -> GroupCredit:
        """The credit, in which ``over`` are the moments of what is normalised together; None: of this batch."""
        length_L = lengths(batch)
        count_L = batch.count_L * (~batch.fault_L & (length_L > 0))
        if self.baseline == Baseline.NONE:
            return self.weigh_turns(batch, length_L, count_L, over)
        group_L = (self.returns(batch, length_L), count_L, batch.tree_L)
        if self.baseline == Baseline.LENGTH:
            adv_L = length_weighted_advantage(group_L[0], length_L, *group_L[1:])
        elif self.baseline == Baseline.SECOND_BEST:
            adv_L = best_advantage(*group_L, self.scale, self.std_eps)
        else:
            adv_L = group_advantage(*group_L, self.baseline, self.scale, self.std_eps, over)
        if self.scale == Scale.TOKENS:
            adv_L = whitened(adv_L, count_L * batch.return_L.isfinite() * length_L, over) * teaches(*group_L)
        if self.drop_equal:
            count_L = count_L * teaches(*group_L)
        return self.weigh(batch, adv_L, length_L, count_L)

    def returns(self, batch: Batch, length_L: Tensor) -> Tensor:
        """return_L, less what an episode of ``length_L`` tokens is too long by."""
        if not self.overlong_max:
            return batch.return_L
        return batch.return_L + overlong_penalty(length_L, self.overlong_max, self.overlong_cache)

    @without_gradient
    def moments(self, batch: Batch, credit: GroupCredit) -> Moments:
        length_L = lengths(batch)
        count_L = batch.count_L * (~batch.fault_L & (length_L > 0) & batch.return_L.isfinite())
        if self.baseline == Baseline.NONE:
            return Moments.of(*self.turn_returns(batch, TurnRows.of(batch, count_L)))
        if self.scale == Scale.BATCH:
            return Moments.of(torch.where(count_L > 0, self.returns(batch, length_L), 0).double(), count_L)
        adv_L = group_advantage(self.returns(batch, length_L), count_L, batch.tree_L, self.baseline, self.scale)
        return Moments.of(adv_L, count_L * length_L)

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
        plus_L, minus_L = sides(adv_L, weight_L)
        weight_T = batch.to_tokens(batch.sum_below(weight_L))
        return GroupCredit(adv_L, plus_L * length_L, minus_L * length_L, count_L, weight_T)

    def turn_returns(self, batch: Batch, rows: TurnRows) -> tuple[Tensor, Tensor]:
        """(return_P, tokens_P): what an episode paid from each turn on, and how many scored tokens that stands for."""
        scored_P = rows.count_P * batch.return_L.isfinite()[rows.leaf_P]
        reward_A = batch.reward_A.double()
        if self.kl_in_reward and self.kl_coef > 0:
            none_T = torch.zeros_like(batch.old_logp_T)
            reward_A = reward_A + batch.per_action(
                reward_less_kl(none_T, batch.old_logp_T, reference_logp(batch), self.kl_coef).double()
            )
        return_P = torch.where(scored_P > 0, rows.rest(reward_A[rows.action_P], self.discount), 0)
        return return_P, scored_P * turn_lengths(batch)[rows.action_P]

    def weigh_turns(self, batch: Batch, length_L: Tensor, count_L: Tensor, over: Moments | None = None) -> GroupCredit:
        """The same for what an episode paid from each turn on, in which those who share a turn differ."""
        rows = TurnRows.of(batch, count_L)
        return_P, tokens_P = self.turn_returns(batch, rows)
        length_P = turn_lengths(batch)[rows.action_P]
        adv_P = whitened(return_P, tokens_P, over) if self.scale == Scale.TOKENS else return_P
        weight_P = self.token_weight(length_L, count_L)[rows.leaf_P]

        def share(x_P: Tensor) -> Tensor:
            return batch.to_tokens(rows.per_action(x_P))

        mean_L = torch.zeros_like(length_L).index_add(0, rows.leaf_P, adv_P * length_P) / length_L.clamp_min(1)
        plus, minus, count, weight_T = map(share, (*sides(adv_P, weight_P), rows.count_P, weight_P))
        return GroupCredit(mean_L, plus, minus, count, weight_T, rows.mean_per_action(adv_P))

    def loss(self, batch: Batch, new: Forward, credit: GroupCredit, /) -> Loss:
        delta_T = new.logp_T - batch.old_logp_T
        policy, clip_fraction = self.gated(batch, new.logp_T, credit)
        scale_T = bounded(delta_T).exp() if self.kl_unbiased else None
        stats = floats(policy=policy, clip_fraction=clip_fraction, zero_groups=zero_groups(batch, credit.adv_L))
        in_loss = replace(self, kl_coef=0.0) if self.kl_in_reward else self
        return in_loss.penalised(policy, batch, new, credit.weight_T, stats, scale_T=scale_T)
