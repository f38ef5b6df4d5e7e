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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from agents.tree import Batch, Forward
from algorithms.base import Algorithm, Loss, Needs, Sampling, ValueMeaning, floats, require, without_gradient
from algorithms.formulas.maths import (
    AdvantageScale,
    bounded,
    explained_variance,
    mean_and_variance,
    require_floor,
    scale_advantage,
    squared_error,
    weighted_mean,
)
from algorithms.formulas.policy_loss import TokenLoss
from algorithms.formulas.ranges import require_usual
from algorithms.formulas.token_gae import TokenRows

if TYPE_CHECKING:
    from torch import Tensor


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
class PPO(TokenLoss, Algorithm[TokenCredit]):
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
        require_usual(self)
        require_floor(self.std_floor, self.normalize)

    @property
    def needs(self) -> Needs:
        return Needs(token_critic=True, replay=True, reference=self.kl_coef > 0)

    @property
    def values(self) -> ValueMeaning:
        return ValueMeaning(self.discount)

    @property
    def sampling(self) -> Sampling:
        return Sampling(group=self.group)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> TokenCredit:
        value_T, rows = _values(old), TokenRows.of(batch)
        count_L = batch.count_L * (~batch.fault_L & batch.return_L.isfinite() & (rows.length_L > 0))
        value_P = value_T[batch.parent_T[rows.token_P]]
        end_L = torch.where(batch.terminated_S[batch.leaf_L], 0, value_T[batch.last_S[batch.leaf_L]])
        adv_P = rows.advantage(batch, value_P, end_L, self.discount, self.gae_lambda)
        count_P = count_L[rows.leaf_P]
        scaled_P = scale_advantage(adv_P, count_P, self.normalize, self.std_floor)
        weight_L = self.weight(rows.length_L, count_L)
        weight_P = weight_L[rows.leaf_P]
        sides = (weight_P * scaled_P.clamp_min(0), weight_P * scaled_P.clamp_max(0), weight_P)
        sums = [rows.per_token(x_P, len(batch)) for x_P in sides]
        return TokenCredit(rows, count_P, adv_P, value_P, weight_P, *sums)

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
        value_T, count_P = _values(new), credit.count_P.double()
        critic = self.critic_loss(batch, value_T, credit)
        policy, shut_T = self.surrogate(bounded(new.logp_T - batch.old_logp_T), credit.plus_T, credit.minus_T)
        total, kl = self.penalised(policy + self.value_coef * critic, batch, new, credit.weight_T)
        value_P = value_T.detach()[batch.parent_T[credit.rows.token_P]]
        stats = floats(
            policy=policy,
            critic=critic,
            clip_fraction=weighted_mean(shut_T, credit.weight_T),
            entropy=weighted_mean(new.entropy_T, credit.weight_T),
            value=weighted_mean(value_P, count_P),
            advantage_std=mean_and_variance(credit.adv_P, count_P)[1].sqrt(),
            explained_variance=explained_variance(value_P, credit.adv_P + credit.value_P, count_P),
        )
        return Loss(total, stats | kl)


def _values(forward: Forward) -> Tensor:
    if forward.value_T is None:
        raise ValueError("PPO needs the values of tokens: give the model a separate critic")
    return forward.value_T.double()
