"""ARPO: episodes of a group fork where an observation has made the agent unsure; their tokens are weighed as GRPO's.

Invariant: what the rollout asks (`ARPO.branch`) depends on the fork point and the generator it is given only; the loss
sees a tree, and does not know how it grew. With the soft advantage it is GRPO's loss of the episodes written out one by
one; a token that d episodes share enters it d times.

    the paper (arXiv 2507.19849)   reduce sum, decision threshold, entropy_weight beta log(V) / V
    its authors' code              measure calling_turn, reduce sum, first_entropy own, top_up one_by_one

The paper divides a sum of entropies by the size V of the vocabulary, where the code and we divide by log V: that is
another weight, under which hardly any fork would depend on the entropy (V = 150,000: 8e-5 of it).

The limit of calls is --react.call-limit, the deadline of a tool --envs.step-seconds, the text for an empty answer
--react.name-empty: they hold for every algorithm, and in evaluations too.

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from agents.rollout.forking.settings import FirstEntropy, Measure, TopUp
from agents.tree import Batch, Forward, Tensor
from algorithms.base import (
    Acts,
    Algorithm,
    ForkPoint,
    Loss,
    Sampling,
    require,
    require_company,
    without_gradient,
)
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.groups import group_advantage, lengths, zero_groups
from algorithms.formulas.policy_loss import TokenLoss, TokenSums, sums_over_episodes


class Decision(StrEnum):
    """How a probability becomes a fork: by chance, once for each fork, or for certain where it is large enough."""

    RANDOM = "random"
    THRESHOLD = "threshold"


class Reduce(StrEnum):
    """How the entropies of a turn's first tokens become one number."""

    MEAN = "mean"
    """Their mean, times the look-ahead: short turns are not taken for sure ones."""
    SUM = "sum"
    """Their sum [code]."""


class Shared(StrEnum):
    """What a token that several episodes share is credited with: the advantage of each, or the mean of all."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True)
class EpisodeCredit(TokenSums):
    """What the episodes are credited with before the update."""

    adv_L: Tensor


@dataclass(frozen=True)
class ARPO(TokenLoss, Algorithm[EpisodeCredit]):
    """ARPO: group advantages over episodes that fork where the policy is uncertain after an observation.

    loss = clipped surrogate of the group advantages, soft or hard, + kl_coef KL.
    """

    ACTS: ClassVar[Acts] = {
        **{
            name: (
                lambda a: a.forks,
                "initial_rollouts below group, beam_size 2",
            )
            for name in ("branch_probability", "entropy_weight", "decision")
        },
        **{
            name: (lambda a: a.entropy_weight != 0, "an entropy_weight that is not 0")
            for name in ("lookahead", "measure", "reduce", "first_entropy")
        },
        "threshold": (lambda a: a.decision == Decision.THRESHOLD, "decision threshold"),
    }

    group: int = 16
    """M: episodes per task, forks included."""
    initial_rollouts: int = 8
    """N: episodes that begin at the root at once."""
    beam_size: int = 2
    """Z: paths that go on from a fork, the episode itself included."""
    branch_probability: float = 0.5
    """Probability of a fork where the entropy is the same as at the first turn."""
    entropy_weight: float = 0.2
    """Increase of that probability with the change of the entropy."""
    decision: Decision = Decision.RANDOM
    """``threshold`` forks wherever the probability is above ``threshold``; otherwise forks are drawn."""
    threshold: float = 0.5
    """Probability above which ``decision threshold`` forks."""
    lookahead: int = 20
    """k: number of a turn's first tokens whose entropy is measured."""
    measure: Measure = Measure.NEXT_TURN
    """Turn that is measured: the one after the observation, or the one that called for it."""
    reduce: Reduce = Reduce.MEAN
    """How the entropies of those tokens become one number; each is a share of log V."""
    first_entropy: FirstEntropy = FirstEntropy.PATH
    """Entropy that a fork is compared with: of the first turn of its path, or of its own first turn."""
    top_up: TopUp = TopUp.AT_ONCE
    """How the remaining episodes begin once all others have ended."""
    advantage: Shared = Shared.SOFT
    """Advantage of tokens that several episodes share."""
    std_eps: float = 1e-6
    """Added to the deviation of a group's returns, which divides their advantages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            1 <= self.initial_rollouts <= self.group,
            f"initial_rollouts must lie in 1..{self.group}, the group, but is {self.initial_rollouts}: raise group",
        )
        require(self.beam_size >= 1, f"beam_size must be at least 1, not {self.beam_size}")
        require(self.lookahead >= 1, f"lookahead must be at least 1, not {self.lookahead}")
        for name in ("branch_probability", "threshold"):
            require(0 <= getattr(self, name) <= 1, f"{name} must lie in 0..1, not {getattr(self, name)}")
        require(math.isfinite(self.entropy_weight), f"entropy_weight must be a number, not {self.entropy_weight}")
        require_company(self.group)

    @property
    def forks(self) -> bool:
        """Whether its episodes can fork at all."""
        return self.initial_rollouts < self.group and self.beam_size > 1

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.SEGMENT if self.forks else Granularity.EPISODE, Methodology.MONTE_CARLO)

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            group=self.group,
            initial=self.initial_rollouts,
            tokens=self.lookahead,
            measure=self.measure,
            top_up=self.top_up,
            first=self.first_entropy,
        )

    def branch(self, fork: ForkPoint, rng: random.Random) -> int:
        """Forks with probability P = clip(p + w (H - H_first), 0, 1), tried Z - 1 times; or Z - 1 if P > threshold."""
        rise = self.entropy(fork.entropy) - self.entropy(fork.first_entropy)
        tries = min(self.beam_size - 1, fork.left)
        if self.decision == Decision.THRESHOLD:
            return tries if self.branch_probability + self.entropy_weight * rise > self.threshold else 0
        # Drawn as the authors draw it: with the same numbers it decides the same.
        drawn = (rng.random() - self.entropy_weight * rise for _ in range(tries))
        return sum(min(1.0, max(0.0, x)) <= self.branch_probability for x in drawn)

    def entropy(self, shares: Sequence[float]) -> float:
        """H of the first tokens of a turn, each given as a share of log V; 0 without any."""
        total = sum(shares[: self.lookahead])
        if self.reduce == Reduce.SUM:
            return total
        return self.lookahead * total / max(1, len(shares[: self.lookahead]))

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> EpisodeCredit:
        length_L = lengths(batch)
        count_L = batch.count_L * (~batch.fault_L & (length_L > 0))
        adv_L = group_advantage(batch.return_L, count_L, batch.tree_L, std_eps=self.std_eps)
        sums = sums_over_episodes(batch, adv_L, self.weight(length_L, count_L), count_L)
        if self.advantage == Shared.HARD:
            # All who share the token, with all their weight, but with one advantage: the mean of theirs.
            total_T = batch.to_tokens(batch.sum_below(batch.count_L * adv_L))
            adv_T = sums.weight_T * total_T / sums.count_T.clamp_min(1)
            sums = replace(sums, plus_T=adv_T.clamp_min(0), minus_T=adv_T.clamp_max(0))
        return EpisodeCredit(sums.plus_T, sums.minus_T, sums.count_T, sums.weight_T, adv_L)

    def loss(self, batch: Batch, new: Forward, credit: EpisodeCredit, /) -> Loss:
        return self.token_loss(batch, new, credit, {"zero_groups": zero_groups(batch, credit.adv_L)})

    def action_advantage(self, batch: Batch, credit: EpisodeCredit) -> Tensor:
        return batch.below(credit.adv_L)
