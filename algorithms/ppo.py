"""PPO whose step is a token, with a critic of its own: the baseline that has no shadow prompts.

    delta_t = r_t + gamma V_{t+1} - V_t     A_t = delta_t + gamma lambda A_{t+1}     target of V_t: A_t + V_t

t counts sampled tokens; what the environment wrote between two turns is skipped. The value after the last token is 0
where the environment ended the episode, and that of the last state where a limit did. Advantages and targets stay what
they were before the update. A token of several episodes has an advantage and a target in each of them; they enter the
policy's loss as two sums, and the critic's as they are: sharing the tree changes nothing.

Source: PPO (arXiv 1707.06347), generalised advantage estimation (arXiv 1506.02438), dual clip (arXiv 1912.09729).

Legend of the shape suffixes: T tokens, A actions, S states, L leaves = episodes, P rows = sampled tokens of single
episodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.base import Algorithm, Loss, Needs, ValueMeaning, floats, require, without_gradient
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.maths import (
    AdvantageScale,
    Moments,
    Normalized,
    bounded,
    critic_stats,
    require_floor,
    scale_advantage,
    sides,
    squared_error,
    weighted_mean,
)
from algorithms.formulas.policy_loss import TokenLoss
from algorithms.formulas.token_gae import TokenRows


@dataclass(frozen=True)
class TokenCredit:
    """What every row had before the update."""

    rows: TokenRows
    count_P: Tensor
    """How many episodes a row stands for; 0 for those that broke or were not scored."""
    adv_P: Tensor
    """Advantages, not scaled."""
    value_P: Tensor
    """Values before the tokens."""
    weight_P: Tensor
    """What the rows weigh in the loss."""
    plus_T: Tensor
    """Sum of weight times scaled advantage over the episodes that share a token, where the advantage is positive."""
    minus_T: Tensor
    """The same where it is negative."""
    weight_T: Tensor
    """Sum of their weights."""


@dataclass(frozen=True)
class PPO(TokenLoss, Normalized, Algorithm[TokenCredit]):
    """PPO: advantages of tokens from a separate critic.

    loss = policy + value_coef critic + kl_coef KL. The critic shares no trained parameter with the policy, and both
    losses have one aggregation.
    """

    group: int = 1
    """Episodes per task. The critic is the baseline."""
    discount: float = 1.0
    """Discount per token (gamma)."""
    gae_lambda: float = 1.0
    """GAE lambda per token: 0 trusts the critic after one token, 1 waits for the end of the episode. With 0.95 a reward
    50 tokens later has weight 0.08."""
    normalize: AdvantageScale = AdvantageScale.WHITEN
    """Centre the batch's advantages and divide them by their standard deviation, over tokens."""
    std_floor: float | None = None
    """Smallest standard deviation to divide by; 0.1 if not set."""
    value_coef: float = 0.5
    """Weight of the critic's loss, which is half the mean squared error. Its step size is --value-lr."""
    value_clip: float = math.inf
    """How far a value may move from the one before the update until its loss is clipped."""

    def __post_init__(self) -> None:
        require(self.value_coef > 0, f"value_coef must be above 0, not {self.value_coef}")
        super().__post_init__()
        require_floor(self.std_floor, self.normalize)

    @property
    def needs(self) -> Needs:
        scaled = self.over_update(self.normalize != AdvantageScale.NONE)
        return Needs(token_critic=True, replay=True, reference=self.kl_coef > 0, moments=scaled)

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.TOKEN, Methodology.TEMPORAL_DIFFERENCE)

    @property
    def values(self) -> ValueMeaning:
        return ValueMeaning(self.discount)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> TokenCredit:
        value_T, rows = _values(old), TokenRows.of(batch)
        count_L = batch.count_L * (~batch.fault_L & batch.return_L.isfinite() & (rows.length_L > 0))
        value_P = value_T[batch.parent_T[rows.token_P]]
        end_L = torch.where(batch.terminated_S[batch.leaf_L], 0, value_T[batch.last_S[batch.leaf_L]])
        adv_P = rows.advantage(batch, value_P, end_L, self.discount, self.gae_lambda)
        count_P = count_L[rows.leaf_P]
        weight_P = self.weight(rows.length_L, count_L)[rows.leaf_P]
        weight_T = rows.per_token(weight_P, len(batch))
        none_T = torch.zeros_like(weight_T)
        credit = TokenCredit(rows, count_P, adv_P, value_P, weight_P, none_T, none_T, weight_T)
        return self.scaled(batch, credit)

    def moments(self, batch: Batch, credit: TokenCredit) -> Moments:
        return Moments.of(credit.adv_P, credit.count_P)

    @without_gradient
    def scaled(self, batch: Batch, credit: TokenCredit, over: Moments | None = None) -> TokenCredit:
        scaled_P = scale_advantage(credit.adv_P, credit.count_P, self.normalize, self.std_floor, over)
        plus_T, minus_T = (credit.rows.per_token(x_P, len(batch)) for x_P in sides(scaled_P, credit.weight_P))
        return replace(credit, plus_T=plus_T, minus_T=minus_T)

    @without_gradient
    def action_advantage(self, batch: Batch, credit: TokenCredit) -> Tensor:
        """The mean over an action's tokens, in all episodes that share it."""
        sums = (credit.rows.per_token(x_P, len(batch)) for x_P in (credit.adv_P * credit.count_P, credit.count_P))
        total_A, tokens_A = (batch.per_action(x_T) for x_T in sums)
        return total_A / tokens_A.clamp_min(1)

    def critic_loss(self, batch: Batch, value_T: Tensor, credit: TokenCredit) -> Tensor:
        """Half the mean over rows of (V - target)^2, the larger of it and that of the clipped V."""
        value_P = value_T[batch.parent_T[credit.rows.token_P]]
        target_P = credit.adv_P + credit.value_P
        return (credit.weight_P * squared_error(value_P, target_P, credit.value_P, self.value_clip)).sum() / 2

    def critic_only(self, batch: Batch, new: Forward) -> Tensor:
        return self.value_coef * self.critic_loss(batch, _values(new), self.credit(batch, new.detach()))

    def loss(self, batch: Batch, new: Forward, credit: TokenCredit, /) -> Loss:
        value_T = _values(new)
        critic = self.critic_loss(batch, value_T, credit)
        policy, shut_T = self.surrogate(bounded(new.logp_T - batch.old_logp_T), credit.plus_T, credit.minus_T)
        value_P = value_T.detach()[batch.parent_T[credit.rows.token_P]]
        stats = floats(policy=policy, critic=critic, clip_fraction=weighted_mean(shut_T, credit.weight_T))
        stats |= critic_stats(value_P, credit.adv_P, credit.adv_P + credit.value_P, credit.count_P)
        return self.penalised(policy + self.value_coef * critic, batch, new, credit.weight_T, stats)


def _values(forward: Forward) -> Tensor:
    if forward.value_T is None:
        raise ValueError("PPO needs the values of tokens: give the model a separate critic")
    return forward.value_T.double()
