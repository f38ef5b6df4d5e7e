"""Turn-PPO: PPO whose step is a turn. The values of the states come from shadow prompts, in the pass of the policy.

    delta_k = r_k + gamma V_{k+1} - V_k     A_k = delta_k + gamma lambda A_{k+1}     target of V_k: A_k + V_k

V after the last turn is 0 where the environment ended the episode, and the value of the last state where a limit did.
Unlike Self-AC, advantages and targets stay what they were before the update, the critic learns the lambda-return, and a
turn of several episodes has an advantage in each of them: sharing the tree changes nothing.

Source: Turn-PPO (arXiv 2512.17008), generalised advantage estimation (arXiv 1506.02438), PPO (arXiv 1707.06347).

Legend of the shape suffixes: T tokens, A actions = turns, S states, L leaves = episodes, P rows = turns of episodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.base import Algorithm, Loss, Needs, ValueMeaning, floats, state_values, without_gradient
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.maths import (
    AdvantageScale,
    Moments,
    Normalized,
    critic_stats,
    scale_advantage,
    sides,
    squared_error,
    weighted_mean,
)
from algorithms.formulas.policy_loss import KLPenalty
from algorithms.formulas.returns import TurnRows
from algorithms.formulas.turn_ratio import TurnClip, mean_weight, said


@dataclass(frozen=True)
class RowCredit:
    """What every row had before the update."""

    rows: TurnRows
    """Rows of episodes that broke or were not scored count 0."""
    adv_P: Tensor
    """Advantages, not scaled."""
    value_P: Tensor
    """Values of the states the turns were taken in."""
    plus_A: Tensor
    """Sum of weight times scaled advantage over the rows that share a turn, where the advantage is positive."""
    minus_A: Tensor
    """The same where it is negative."""
    weight_A: Tensor
    """Sum of their weights; 1 over the whole batch."""


@dataclass(frozen=True)
class TurnPPO(TurnClip, KLPenalty, Normalized, Algorithm[RowCredit]):
    """Turn-PPO: PPO whose actions are turns, with a value for every state.

    loss = policy + value_coef critic + kl_coef KL, each a mean over turns (KL: over tokens).
    """

    group: int = 1
    """Episodes per task. The critic is the baseline."""
    discount: float = 0.99
    """Discount per turn (gamma)."""
    gae_lambda: float = 0.9
    """GAE lambda per turn: 0 trusts the critic after one turn, 1 waits for the end of the episode."""
    normalize: AdvantageScale = AdvantageScale.WHITEN
    """Centre the batch's advantages and divide them by their standard deviation."""
    value_coef: float = 0.5
    """Weight of the critic's loss, which is half the mean squared error."""
    value_clip: float = math.inf
    """How far a value may move from the one before the update until its loss is clipped."""

    @property
    def needs(self) -> Needs:
        scaled = self.over_update(self.normalize != AdvantageScale.NONE)
        return Needs(critic=True, replay=True, reference=self.kl_coef > 0, moments=scaled)

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.TURN, Methodology.TEMPORAL_DIFFERENCE)

    @property
    def values(self) -> ValueMeaning:
        return ValueMeaning(self.discount)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> RowCredit:
        value_S = state_values(old, "Turn-PPO").detach()
        rows = TurnRows.of(batch, batch.count_L * (~batch.fault_L & batch.return_L.isfinite()))
        adv_P = self.advantage(batch, rows, value_S)
        sums = self.sums(batch, rows, adv_P)
        return RowCredit(rows, adv_P, value_S[batch.state_A[rows.action_P]], *sums)

    def sums(self, batch: Batch, rows: TurnRows, adv_P: Tensor, over: Moments | None = None) -> list[Tensor]:
        """plus_A, minus_A and weight_A."""
        scaled_P = scale_advantage(adv_P, rows.count_P, self.normalize, over=over)
        weight_P = mean_weight(rows.count_P * said(batch)[rows.action_P])
        return [rows.per_action(x_P) for x_P in (*sides(scaled_P, weight_P), weight_P)]

    def moments(self, batch: Batch, credit: RowCredit) -> Moments:
        return Moments.of(credit.adv_P, credit.rows.count_P)

    @without_gradient
    def scaled(self, batch: Batch, credit: RowCredit, over: Moments) -> RowCredit:
        plus_A, minus_A, weight_A = self.sums(batch, credit.rows, credit.adv_P, over)
        return replace(credit, plus_A=plus_A, minus_A=minus_A, weight_A=weight_A)

    def advantage(self, batch: Batch, rows: TurnRows, value_S: Tensor) -> Tensor:
        """A_P by generalised advantage estimation over the turns of each episode."""
        next_P = batch.next_A[rows.action_P]
        ended_P = (rows.next_P < 0) & batch.terminated_S[next_P]
        reward_A = torch.nan_to_num(batch.reward_A.double(), posinf=0.0, neginf=0.0)
        later_P = torch.where(ended_P, 0, value_S[next_P])
        delta_P = reward_A[rows.action_P] + self.discount * later_P - value_S[batch.state_A[rows.action_P]]
        return rows.rest(delta_P, self.discount * self.gae_lambda)

    @without_gradient
    def action_advantage(self, batch: Batch, credit: RowCredit) -> Tensor:
        return credit.rows.mean_per_action(credit.adv_P)

    def critic_loss(self, value_P: Tensor, credit: RowCredit) -> Tensor:
        """Half the mean over rows of (V - target)^2, the larger of it and that of the clipped V."""
        error_P = squared_error(value_P, credit.adv_P + credit.value_P, credit.value_P, self.value_clip)
        return weighted_mean(error_P, credit.rows.count_P.double()) / 2

    def critic_only(self, batch: Batch, new: Forward) -> Tensor:
        credit = self.credit(batch, new.detach())
        return self.value_coef * self.critic_loss(_values(batch, new, credit), credit)

    def loss(self, batch: Batch, new: Forward, credit: RowCredit, /) -> Loss:
        value_P, target_P = _values(batch, new, credit), credit.adv_P + credit.value_P
        critic = self.critic_loss(value_P, credit)
        policy, clip_fraction = self.turn_loss(batch, new.logp_T, credit.plus_A, credit.minus_A, credit.weight_A)
        stats = floats(policy=policy, critic=critic, clip_fraction=clip_fraction)
        stats |= critic_stats(value_P.detach(), credit.adv_P, target_P, credit.rows.count_P.double())
        total, weight_T = policy + self.value_coef * critic, batch.to_tokens(credit.weight_A)
        return self.penalised(total, batch, new, weight_T, stats, mean=True)


def _values(batch: Batch, forward: Forward, credit: RowCredit) -> Tensor:
    """V_P: the value of the state that each row's turn was taken in."""
    return state_values(forward, "Turn-PPO")[batch.state_A[credit.rows.action_P]]
