"""VinePPO: PPO whose baseline is what the policy itself gets when it plays on from a state, instead of a critic.

    V(s) = mean over K continuations of sum_j gamma^j r_j        A_k = r_k + gamma V(s_{k+1}) - V(s_k)

V is unbiased for the policy before the update, and 0 in a last state. The continuations are a baseline only: nothing is
learned from their tokens. In the source a step is a line of reasoning and gamma is 1; here it is a turn.

Source: Kazemnejad et al. 2024, VinePPO (arXiv 2410.01679), eq. 4 to 6.

Legend of the shape suffixes: T tokens, A actions = turns, S states.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agents.tree import Batch, Forward
from algorithms.base import Algorithm, Loss, Needs, floats, require, without_gradient
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.fixed_credit import FixedAdvantages, FixedCredit
from algorithms.formulas.maths import AdvantageScale, Normalized, mean_and_variance, scale_advantage
from algorithms.formulas.policy_loss import KLPenalty
from algorithms.formulas.returns import scored, turn_advantage
from algorithms.formulas.turn_ratio import TurnClip, TurnRatio, mean_weight, said


@dataclass(frozen=True)
class VinePPO(FixedAdvantages, TurnClip, KLPenalty, Normalized, Algorithm[FixedCredit]):
    """VinePPO: PPO over turns with Monte Carlo values of the policy itself.

    loss = policy + kl_coef KL, each a mean over turns (KL: over tokens).
    """

    group: int = 1
    """Episodes per task. Their states have values, so that none needs another."""
    continuations: int = 3
    """Episodes played on from every state (K). The source takes 9; each costs as much as an episode's rest."""
    count_continuations: bool = True
    """Count what continuations cost as the run's own steps, tokens and seconds. Without, it is a control: an unbiased
    critic for nothing."""
    discount: float = 1.0
    """Discount per turn (gamma)."""
    ratio: TurnRatio = TurnRatio.TOKEN
    """The ratio that is clipped."""
    normalize: AdvantageScale = AdvantageScale.WHITEN
    """Centre the batch's advantages and divide them by their standard deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.continuations >= 1, f"continuations must be at least 1, not {self.continuations}")

    @property
    def needs(self) -> Needs:
        return Needs(
            continuations=self.continuations,
            discount=self.discount,
            count_continuations=self.count_continuations,
            reference=self.kl_coef > 0,
            moments=self.over_update(self.normalize != AdvantageScale.NONE),
        )

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.TURN, Methodology.MONTE_CARLO)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> FixedCredit:
        """A turn does not count where all continuations of one of its states broke.

        Raises ValueError where no state has a value.
        """
        batch = scored(batch)
        known_S = torch.full_like(batch.oracle_S, torch.nan) if batch.continued_S is None else batch.continued_S
        if batch.state_A.numel() and known_S[batch.state_A].isnan().all():
            raise ValueError("VinePPO needs episodes that the policy played on from the states")
        last_S = torch.ones_like(batch.terminated_S).index_fill(0, batch.state_A, False)
        value_S = torch.where(last_S, 0.0, known_S.double())
        adv_A = turn_advantage(batch, value_S, torch.zeros_like(value_S), self.discount, 0.0)
        lost_A = adv_A.isnan()
        return FixedCredit(adv_A.nan_to_num(0.0), batch.count_A * ~lost_A)

    def loss(self, batch: Batch, new: Forward, credit: FixedCredit, /) -> Loss:
        scaled_A = scale_advantage(credit.adv_A, credit.count_A, self.normalize, over=credit.over)
        policy, clip_fraction = self.mean_turn_loss(batch, new.logp_T, scaled_A, credit.count_A)
        weight_T = batch.to_tokens(mean_weight(credit.count_A * said(batch)))
        stats = floats(
            policy=policy,
            clip_fraction=clip_fraction,
            advantage_std=mean_and_variance(credit.adv_A, credit.count_A)[1].sqrt(),
        )
        return self.penalised(policy, batch, new, weight_T, stats, mean=True)
