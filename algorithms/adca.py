"""ADCA-GRPO: a judge calls every action GOOD or BAD, and its word is added to the outcome, each standardised by itself.

    c_j = alpha z_j + beta o [j is the last step],    A_k = sum of c_j over j >= k,    then GRPO's clipped loss

z standardises the labels over the steps of a group, o the returns over its episodes (`formulas/attribution.py`).
Source: AgentEvolver's documentation and code. An episode of which not every action has a label is not judged: it is
counted, has no part in the statistics of the labels, and is credited with its outcome alone. So is a whole batch
without labels (``prm_epoch`` over): its outcomes are standardised as before, by the population's deviation, where the
authors' code goes over to GRPO's unbiased one. With ``enable`` off it is GRPO, bit for bit.

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes, K steps of the longest episode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.base import Acts, JudgedAlgorithm, Loss, Needs, require, require_company, without_gradient
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.attribution import (
    OrmDistribution,
    Scheme,
    ScoreSource,
    SkipType,
    Steps,
    allocated_rewards,
    fused,
    label_rewards,
    outcome_scores,
    path_matrix,
    standardised,
    suffix_sums,
)
from algorithms.formulas.attribution_metrics import allocation_metrics, fusion_metrics
from algorithms.formulas.groups import group_advantage, lengths
from algorithms.formulas.maths import SAME, sides, weighted_mean
from algorithms.formulas.policy_loss import TokenLoss, TokenSums


@dataclass(frozen=True)
class StepCredit(TokenSums):
    """What the steps are credited with before the update."""

    adv_A: Tensor
    """Mean advantage of the action over the episodes it is a step of."""
    stats: dict[str, float]


@dataclass(frozen=True)
class ADCA(TokenLoss, JudgedAlgorithm[StepCredit]):
    """ADCA-GRPO: group advantages that a judge's labels shift from step to step.

    loss = clipped surrogate of the steps' advantages + kl_coef KL.
    """

    without_judge: ClassVar[str] = "no-enable"
    ACTS: ClassVar[Acts] = {
        "fix_base": (lambda a: a.enable and not a.do_batch_norm, "no do_batch_norm, in which it cancels"),
        "equal_trajectory_weight": (lambda a: a.enable and a.do_batch_norm, "do_batch_norm"),
        "alpha_min": (lambda a: a.alpha_steps > 0, "alpha_steps above 0"),
        **{
            name: (lambda a: a.prm_scheme == Scheme.ALLOCATION, "prm_scheme allocation")
            for name in ("consistent_scale", "pos_unconsistent_scale", "neg_unconsistent_scale")
        },
        **{
            name: (
                lambda a: a.enable and a.orm_distribution != OrmDistribution.ONLY_PRM,
                "orm_distribution last_step or all_steps",
            )
            for name in ("alpha", "alpha_steps", "beta")
        },
        **{
            name: (lambda a: a.enable, "enable")
            for name in (
                *("prm_scheme", "do_batch_norm", "orm_distribution", "enable_length_normalization", "suffix"),
                *("prm_epoch", "skip_type", "overall_score_source", "enable_adca_metric"),
            )
        },
    }

    group: int = 8
    """Episodes per task."""
    enable: bool = True
    """Use the judge; off is plain GRPO."""
    prm_scheme: Scheme = Scheme.DECOUPLE
    """How labels become step rewards; the authors recommend ``decouple``."""
    do_batch_norm: bool = True
    """Standardise the step rewards over the steps of the group."""
    equal_trajectory_weight: bool = True
    """Standardise with equal weight for every episode; otherwise for every step."""
    fix_base: float = 0.2
    """Reward of a label under ``decouple``; cancels when standardised."""
    consistent_scale: float = 1.0
    """Weight of a label that agrees with the outcome, under ``allocation``."""
    pos_unconsistent_scale: float = 0.2
    """Weight of BAD in a success, under ``allocation``."""
    neg_unconsistent_scale: float = 0.2
    """Weight of GOOD in a failure, under ``allocation``."""
    alpha: float = 0.1
    """Weight of the labels."""
    alpha_min: float = 0.0
    """Value to which alpha falls, along a cosine, in alpha_steps updates."""
    alpha_steps: int = 0
    """Updates until alpha reaches alpha_min; 0 keeps it constant."""
    beta: float = 1.0
    """Weight of the outcome."""
    orm_distribution: OrmDistribution = OrmDistribution.LAST_STEP
    """Steps that receive the outcome; ``all_steps`` makes advantages grow with the number of steps left."""
    enable_length_normalization: bool = False
    """Divide the credit of a step by the root of the number of steps, under ``decouple``."""
    suffix: bool = True
    """Credit a step with the rewards of all steps after it too; off: with its own only."""
    prm_epoch: int = 0
    """Passes over the training tasks in which the judge is used; 0 is always."""
    skip_type: SkipType = SkipType.NONE
    """Episodes that are not judged."""
    overall_score_source: ScoreSource = ScoreSource.TOKEN_LEVEL_REWARDS
    """What the judge's prompt says about the episode's outcome."""
    enable_adca_metric: bool = True
    """Log how labels and outcomes compare."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_company(self.group)
        scales = ("consistent_scale", "pos_unconsistent_scale", "neg_unconsistent_scale")
        for name in (*scales, "alpha", "alpha_min", "beta", "alpha_steps", "prm_epoch"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, but is {getattr(self, name)}")
        require(self.fix_base > 0, f"fix_base must be above 0, not {self.fix_base}")
        if self.prm_scheme == Scheme.ALLOCATION:
            only = "is for prm_scheme decouple only: allocation divides the outcome itself"
            require(self.orm_distribution != OrmDistribution.ONLY_PRM, f"orm_distribution only_prm {only}")
            require(not self.enable_length_normalization, f"enable_length_normalization {only}")

    @property
    def needs(self) -> Needs:
        return Needs(judge=self.enable, reference=self.kl_coef > 0)

    @property
    def credit_kind(self) -> CreditKind:
        if not self.enable:
            return CreditKind(Granularity.EPISODE, Methodology.MONTE_CARLO)
        return CreditKind(Granularity.TURN, Methodology.JUDGE)

    def asked(self, return_L: Tensor, tree_L: Tensor, visit_L: Tensor) -> Tensor:
        """asked_L: in the first ``prm_epoch`` passes over the training tasks, and not where it is ``skipped``."""
        early_L = visit_L < self.prm_epoch if self.prm_epoch else torch.ones_like(visit_L, dtype=torch.bool)
        return early_L & ~self._skips(return_L, torch.ones_like(tree_L), tree_L)

    def judge_score(self, return_L: Tensor, tree_L: Tensor) -> Tensor:
        if self.overall_score_source == ScoreSource.ADVANTAGES:
            return group_advantage(return_L, torch.ones_like(tree_L), tree_L)
        return super().judge_score(return_L, tree_L)

    def skipped(self, batch: Batch) -> Tensor:
        """skip_L: the episodes that the judge need not be asked about; labels are not looked at."""
        return self._skips(batch.return_L, _played(batch), batch.tree_L)

    @without_gradient
    def _skips(self, return_L: Tensor, count_L: Tensor, tree_L: Tensor) -> Tensor:
        if self.skip_type == SkipType.SKIP_ALL_NEG:
            return return_L <= 0
        if self.skip_type == SkipType.SKIP_SMALL_ADV:
            return group_advantage(return_L, count_L, tree_L).abs() < SAME
        return torch.zeros_like(tree_L, dtype=torch.bool)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> StepCredit:
        count_L = _played(batch)
        action_LK = path_matrix(batch)
        said_LK = action_LK >= 0
        stats: dict[str, float] = {}
        labelled = bool((batch.label_A >= 0).any())
        if self.enable and (labelled or self.orm_distribution != OrmDistribution.ONLY_PRM):
            steps = self.steps(batch, action_LK)
            if not labelled:
                steps = replace(steps, judged_L=torch.zeros_like(steps.judged_L))
            adv_LK, stats = self.step_advantages(steps, self.alpha_now(batch))
        else:
            adv_LK = group_advantage(batch.return_L, count_L, batch.tree_L)[:, None] * said_LK
            stats = {"unjudged": 1.0} if self.enable else {}

        def shared(x_LK: Tensor) -> Tensor:
            """x_A: summed over the episodes that an action is a step of."""
            return x_LK.new_zeros(batch.state_A.numel()).index_add(0, action_LK[said_LK], x_LK[said_LK])

        weight_L = self.weight(lengths(batch), count_L)
        plus_LK, minus_LK = sides(adv_LK, weight_L[:, None])
        all_L = batch.count_L.to(adv_LK.dtype)
        return StepCredit(
            adv_A=shared(adv_LK * all_L[:, None]) / batch.sum_below(all_L),
            plus_T=batch.to_tokens(shared(plus_LK)),
            minus_T=batch.to_tokens(shared(minus_LK)),
            count_T=batch.to_tokens(batch.sum_below(count_L)),
            weight_T=batch.to_tokens(batch.sum_below(weight_L)),
            stats=stats | {"zero_groups": 1 - batch.tree_L[adv_LK.any(1)].unique().numel() / max(batch.trees, 1)},
        )

    def loss(self, batch: Batch, new: Forward, credit: StepCredit, /) -> Loss:
        return self.token_loss(batch, new, credit, credit.stats)

    def action_advantage(self, batch: Batch, credit: StepCredit) -> Tensor:
        return credit.adv_A

    def alpha_now(self, batch: Batch) -> float:
        """alpha after as many updates as the policy that sampled the batch has had."""
        if not self.alpha_steps:
            return self.alpha
        done = min(1.0, max(0, int(batch.version_A.max())) / self.alpha_steps)
        return self.alpha_min + (self.alpha - self.alpha_min) * (1 + math.cos(math.pi * done)) / 2

    def steps(self, batch: Batch, action_LK: Tensor) -> Steps:
        """The episodes as rows; what was skipped has the labels of its outcome, where that is known."""
        said_LK = action_LK >= 0
        label_LK = torch.where(said_LK, batch.label_A[action_LK], 1)
        complete_L, known_L = (label_LK >= 0).all(1), batch.success_L >= 0
        success_L = batch.success_L == 1
        skipped_L = self.skipped(batch) & ~complete_L & known_L
        judged_L = complete_L | skipped_L
        if self.prm_scheme == Scheme.ALLOCATION:
            judged_L = judged_L & known_L
        good_LK = torch.where(skipped_L[:, None], success_L[:, None], label_LK == 1)
        count_L = torch.where(batch.return_L.isfinite(), _played(batch), 0)
        return Steps(said_LK, good_LK, judged_L, batch.return_L, success_L, count_L, batch.tree_L, batch.trees)

    def step_rewards(self, steps: Steps) -> Tensor:
        """x_LK: what the labels are worth, before they are standardised."""
        if self.prm_scheme == Scheme.DECOUPLE:
            return label_rewards(steps, self.fix_base)
        return allocated_rewards(steps, *self.scales)

    @property
    def scales(self) -> tuple[float, float, float]:
        return self.consistent_scale, self.pos_unconsistent_scale, self.neg_unconsistent_scale

    def step_advantages(self, steps: Steps, alpha: float) -> tuple[Tensor, dict[str, float]]:
        """(adv_LK, stats): labels and outcomes standardised, fused and summed from each step on."""
        x_LK = self.step_rewards(steps)
        z_LK = standardised(x_LK, steps, self.equal_trajectory_weight) if self.do_batch_norm else x_LK
        o_L = outcome_scores(steps)
        c_LK = fused(steps, z_LK, o_L, alpha, self.beta, self.orm_distribution, self.enable_length_normalization)
        adv_LK = suffix_sums(c_LK, steps.said_LK) if self.suffix else c_LK
        stats = {"alpha": alpha, "unjudged": float(weighted_mean((~steps.judged_L).double(), steps.count_L.double()))}
        if self.enable_adca_metric:
            stats |= fusion_metrics(steps, z_LK, o_L, c_LK, alpha, self.beta, self.orm_distribution)
            if self.prm_scheme == Scheme.ALLOCATION:
                stats |= allocation_metrics(steps, x_LK, z_LK, self.scales)
        return adv_LK, stats


def _played(batch: Batch) -> Tensor:
    """count_L without the episodes that broke, and without those in which nothing was said."""
    actions_L = batch.per_episode(torch.ones_like(batch.reward_A))
    return batch.count_L * (~batch.fault_L & (actions_L > 0))
