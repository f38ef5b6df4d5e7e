"""A control, not a method: the environment's own chance of success stands in the critic's place.

    A_k = delta_k + lambda A_{k+1}     delta_k = V(s_{k+1}) - V(s_k)

V is what `TextEnv.oracle` tells, the value of an agent of a skill that the environment names, not of the policy that
learns; in a last state it is the verdict. Where it gains nothing over the same loss without a critic, the task cannot
show a critic's merit. It is no upper limit: a critic of the policy itself may gain more.

Legend of the shape suffixes: T tokens, A actions = turns, S states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from agents.tree import Batch, Forward
from algorithms.base import Algorithm, Loss, Needs, floats, without_gradient
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.fixed_credit import FixedAdvantages, FixedCredit
from algorithms.formulas.maths import (
    AdvantageScale,
    Normalized,
    mean_and_variance,
    require_floor,
    scale_advantage,
    weighted_mean,
)
from algorithms.formulas.returns import scored, turn_advantage
from algorithms.formulas.turn_ratio import TurnClip


@dataclass(frozen=True)
class ExactCritic(FixedAdvantages, TurnClip, Normalized, Algorithm[FixedCredit]):
    """A control: the clipped loss over turns with advantages from the environment's oracle.

    It learns success; rewards have no part in it.
    """

    group: int = 1
    """Episodes per task."""
    gae_lambda: float = 0.0
    """GAE lambda: 0 credits a turn with the change it made, 1 with the outcome minus the chance before it."""
    normalize: AdvantageScale = AdvantageScale.STD
    """Divide the batch's advantages by their standard deviation; ``whiten`` also centres them, ``lift`` only where
    their mean is below 0."""
    std_floor: float | None = None
    """Smallest standard deviation to divide by; 0.1 if not set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_floor(self.std_floor, self.normalize)

    @property
    def needs(self) -> Needs:
        return Needs(oracle=True, moments=self.over_update(self.normalize != AdvantageScale.NONE))

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.TURN, Methodology.ORACLE)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> FixedCredit:
        batch, value_S = scored(batch), batch.oracle_S.double()
        if value_S.isnan().any():
            raise ValueError("the exact critic needs an environment whose oracle tells the chance of success")
        unpaid = replace(batch, reward_A=torch.zeros_like(batch.reward_A))
        return FixedCredit(turn_advantage(unpaid, value_S, value_S, 1.0, self.gae_lambda), batch.count_A)

    def loss(self, batch: Batch, new: Forward, credit: FixedCredit, /) -> Loss:
        scaled_A = scale_advantage(credit.adv_A, credit.count_A, self.normalize, self.std_floor, credit.over)
        policy, clip_fraction = self.mean_turn_loss(batch, new.logp_T, scaled_A, credit.count_A)
        stats = floats(
            policy=policy,
            clip_fraction=clip_fraction,
            entropy=weighted_mean(new.entropy_T, batch.to_tokens(credit.count_A).double()),
            advantage_std=mean_and_variance(credit.adv_A, credit.count_A)[1].sqrt(),
        )
        return Loss(policy, stats)
