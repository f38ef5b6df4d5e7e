"""Self-AC: one model acts, and values every state it passed through by a shadow prompt in the same forward pass.

Source: the Self-AC slides, read as in the project's algorithm specification. All defaults that the slides leave open
are named below. With ``literal``, ``terminal_target zero``, ``td_grad residual``, ``normalize none`` and ``dual_clip
inf`` the loss is the slides' own, with means over what is there instead of over the padding.

Legend of the shape suffixes: M steps of look-ahead, T tokens, A actions = turns, S states, L leaves = episodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from agents.tree import Batch, Forward
from algorithms.base import Algorithm, Loss, Needs, Sampling, ValueMeaning, floats, require, without_gradient
from algorithms.formulas.maths import (
    AdvantageScale,
    explained_variance,
    mean_and_variance,
    require_floor,
    scale_advantage,
    squared_error,
    weighted_mean,
)
from algorithms.formulas.policy_loss import KLPenalty
from algorithms.formulas.ranges import require_usual
from algorithms.formulas.returns import Backup, scored, td_targets, turn_advantage, turns_in
from algorithms.formulas.turn_ratio import TurnClip

if TYPE_CHECKING:
    from torch import Tensor


class TerminalTarget(StrEnum):
    """What V of the last state of a terminated episode learns: 0, nothing, or the reward of the last action."""

    ZERO = "zero"
    NONE = "none"
    OUTCOME = "outcome"


class TDGrad(StrEnum):
    """Whether the TD targets are constants, or the gradient goes through both sides."""

    DETACH = "detach"
    RESIDUAL = "residual"


class TurnBaseline(StrEnum):
    """What a turn is compared with: the value of its state, or the mean over what was tried in that state."""

    VALUE = "value"
    SIBLING_MEAN = "sibling_mean"


@dataclass(frozen=True)
class TurnCredit:
    """What Self-AC keeps from before the first update."""

    value_S: Tensor
    """Values then; ``value_clip`` is measured from them."""
    adv_A: Tensor | None
    """Advantages then, if they are frozen."""
    gae_lambda: float | None = None
    """What this batch's advantages are computed with, where the algorithm's own is not."""


@dataclass(frozen=True)
class SelfAC(TurnClip, KLPenalty, Algorithm[TurnCredit]):
    """Self-AC: the policy's own body is the critic of turns, trained in the same pass.

    loss = alpha critic + (1 - alpha) policy + kl_coef KL, each a mean over turns (KL: over tokens).
    """

    group: int = 1
    """Episodes per task. The critic is the baseline, so distinct tasks teach more than repeated ones."""
    alpha: float = 0.5
    """Share of the critic in the loss."""
    discount: float = 1.0
    """Discount per turn. Below 1, turns that only take time cost value."""
    gae_lambda: float = 1.0
    """GAE lambda: 1 compares whole returns with the value; below 0.8 it fails while the critic is poor."""
    adaptive_lambda: bool = False
    """Choose each batch's lambda by the critic's explained variance of the returns: 1 where it explains nothing,
    falling linearly to gae_lambda where it explains everything."""
    td_max: int = 5
    """The critic learns the mean of the TD(1) to TD(td_max) losses."""
    terminal_target: TerminalTarget = TerminalTarget.OUTCOME
    """Target of V after a terminated episode's last turn; ``outcome`` makes it a verifier of finished work."""
    td_grad: TDGrad = TDGrad.DETACH
    """``residual`` lets the gradient through the targets too, as in the source's formula."""
    literal: bool = False
    """Targets exactly as in the source: the last turn bootstraps from V_n, a truncated episode counts as ended."""
    backup: Backup = Backup.MEAN
    """Value of a state of a search tree, from the actions tried in it; ``max`` is policy improvement, biased upwards.
    """
    baseline: TurnBaseline = TurnBaseline.VALUE
    """``sibling_mean`` needs states in which several actions were tried: an only child has advantage 0."""
    normalize: AdvantageScale = AdvantageScale.STD
    """Divide the batch's advantages by their standard deviation; ``whiten`` also centres them."""
    std_floor: float | None = None
    """Smallest standard deviation to divide by: 0.1 if not set, for rewards from 0 to 1; 0 is the source's. When almost
    all episodes succeed, advantages are mostly the critic's error, and dividing by their tiny deviation can undo what
    was learned."""
    freeze_adv: bool = False
    """Keep the advantages of the first pass; otherwise they follow the current values."""
    value_clip: float = math.inf
    """How far a value may move from that of the first pass before its loss is clipped."""

    def __post_init__(self) -> None:
        require_usual(self)
        require(0 <= self.alpha <= 1, f"alpha must lie in 0..1, not {self.alpha}")
        require(
            not self.adaptive_lambda or self.gae_lambda < 1,
            "adaptive_lambda falls from 1 to gae_lambda: set gae_lambda below 1",
        )
        require_floor(self.std_floor, self.normalize)
        require(self.td_max >= 1, f"td_max must be at least 1, not {self.td_max}")

    @property
    def needs(self) -> Needs:
        return Needs(critic=True, search=True, replay=True, reference=self.kl_coef > 0)

    @property
    def values(self) -> ValueMeaning:
        return ValueMeaning(self.discount, verifies=self.terminal_target == TerminalTarget.OUTCOME)

    @property
    def sampling(self) -> Sampling:
        return Sampling(group=self.group)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> TurnCredit:
        value_S, batch = _values(old).detach(), scored(batch)
        chosen = self.chosen_lambda(batch, value_S) if self.adaptive_lambda else None
        return TurnCredit(value_S, self.advantage(batch, value_S, chosen) if self.freeze_adv else None, chosen)

    def loss(self, batch: Batch, new: Forward, credit: TurnCredit, /) -> Loss:
        batch = scored(batch)
        value_S = _values(new)
        current_A = self.advantage(batch, value_S.detach(), credit.gae_lambda)
        adv_A = current_A if credit.adv_A is None else credit.adv_A
        critic = self.critic_loss(batch, value_S, credit.value_S)
        scaled_A = scale_advantage(adv_A, batch.count_A, self.normalize, self.std_floor)
        policy, clip_fraction = self.mean_turn_loss(batch, new.logp_T, scaled_A, batch.count_A)
        weight_T = batch.to_tokens(batch.count_A).double()
        total, kl = self.penalised(self.alpha * critic + (1 - self.alpha) * policy, batch, new, weight_T, mean=True)
        before_A = value_S.detach()[batch.state_A]
        stats = floats(
            policy=policy,
            critic=critic,
            clip_fraction=clip_fraction,
            entropy=weighted_mean(new.entropy_T, weight_T),
            value=weighted_mean(before_A, batch.count_A.double()),
            advantage_std=mean_and_variance(adv_A, batch.count_A)[1].sqrt(),
            explained_variance=explained_variance(before_A, before_A + current_A, batch.count_A),
        )
        if credit.gae_lambda is not None:
            stats["gae_lambda"] = credit.gae_lambda
        return Loss(total, stats | kl)

    @without_gradient
    def action_advantage(self, batch: Batch, credit: TurnCredit) -> Tensor:
        if credit.adv_A is not None:
            return credit.adv_A
        return self.advantage(scored(batch), credit.value_S, credit.gae_lambda)

    def critic_only(self, batch: Batch, new: Forward) -> Tensor:
        value_S = _values(new)
        return self.alpha * self.critic_loss(scored(batch), value_S, value_S.detach())

    def chosen_lambda(self, batch: Batch, value_S: Tensor) -> float:
        """1 - (1 - gae_lambda) EV, with EV in 0..1 that of the values before the update and the realised returns.

        The critic has not learned from these episodes yet, so they need no other half to be judged by. That the batch's
        own returns choose one number for all of it biases the advantages as dividing them by their deviation does.
        """
        before_A, end_S = value_S[batch.state_A], self.end_value(batch, value_S)
        realised_A = before_A + turn_advantage(batch, value_S, end_S, self.discount, 1.0, self.backup)
        foreseen = explained_variance(before_A, realised_A, batch.count_A)
        return 1 - (1 - self.gae_lambda) * float(foreseen.clamp(0, 1))

    def advantage(self, batch: Batch, value_S: Tensor, gae_lambda: float | None = None) -> Tensor:
        """A_A = Q - V with lambda-returns Q; minus the mean A of the siblings for ``sibling_mean``. No gradient.

        ``gae_lambda`` takes the place of the algorithm's own.
        """
        end_S = self.end_value(batch, value_S)
        trace = self.gae_lambda if gae_lambda is None else gae_lambda
        adv_A = turn_advantage(batch, value_S, end_S, self.discount, trace, self.backup)
        if self.baseline == TurnBaseline.SIBLING_MEAN:
            adv_A = adv_A - batch.expect(adv_A, torch.zeros_like(value_S))[batch.state_A]
        return adv_A

    def end_value(self, batch: Batch, value_S: Tensor) -> Tensor:
        """What a state is worth in which nothing was tried: 0 if the episode ended there, else V (detached)."""
        ended_S = torch.ones_like(batch.terminated_S) if self.literal else batch.terminated_S
        return torch.where(ended_S, 0, value_S.detach())

    def targets(self, batch: Batch, value_S: Tensor) -> Tensor:
        """T_MS: the TD(1) to TD(td_max) targets of every state; what they bootstrap from has a gradient."""
        end_S = self.end_value(batch, value_S)
        start_S = value_S if self.literal else torch.where(turns_in(batch) > 0, value_S, end_S)
        return td_targets(batch, start_S, end_S, self.discount, self.td_max, self.backup)

    def critic_loss(self, batch: Batch, value_S: Tensor, old_value_S: Tensor) -> Tensor:
        """Mean over turns (and the last states, where they have a target) of the mean over m of (V - T_m)^2."""
        target_MS = self.targets(batch, value_S.detach() if self.td_grad == TDGrad.DETACH else value_S)
        error_S = squared_error(value_S, target_MS, old_value_S, self.value_clip).mean(0)
        turns_S = turns_in(batch).double()
        if self.terminal_target == TerminalTarget.NONE:
            return weighted_mean(error_S, turns_S)
        leaf_L = batch.leaf_L[batch.prev_S[batch.leaf_L] >= 0]
        last_L = batch.prev_S[leaf_L]
        outcome_L = batch.reward_A[last_L] * (self.terminal_target == TerminalTarget.OUTCOME)
        error_L = squared_error(value_S[leaf_L], outcome_L, old_value_S[leaf_L], self.value_clip)
        ended_L = batch.count_A[last_L] * (batch.terminated_S[leaf_L] | self.literal)
        return weighted_mean(torch.cat([error_S, error_L]), torch.cat([turns_S, ended_L.double()]))


def _values(forward: Forward) -> Tensor:
    if forward.value_S is None:
        raise ValueError("Self-AC needs values: pack the batch with a critic prompt")
    return forward.value_S.double()
