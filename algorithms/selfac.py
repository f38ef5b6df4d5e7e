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

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.base import (
    Algorithm,
    Loss,
    Needs,
    ValueMeaning,
    floats,
    require,
    state_values,
    without_gradient,
)
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.maths import (
    AdvantageScale,
    Explained,
    Moments,
    Normalized,
    critic_stats,
    require_floor,
    scale_advantage,
    sides,
    squared_error,
    weighted_mean,
)
from algorithms.formulas.policy_loss import KLPenalty
from algorithms.formulas.returns import Backup, Turns, scored, td_targets, turn_advantage, turns_in
from algorithms.formulas.turn_ratio import TurnClip, mean_weight, said

KNOWN = 0.1
"""Where lambda is not set: share of the returns' variance from which on values stand in for later rewards."""
KNOWN_LAMBDA = 0.9
"""Lambda in an update in which they do."""


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
    adv_P: Tensor | None
    """Advantages of the turns then, if they are frozen."""
    over: Moments | None = None
    """Of the whole update's advantages then, by which they are normalised; None: this batch is all of it."""
    gae_lambda: float = 1.0
    """Lambda of all advantages of the update."""


@dataclass(frozen=True)
class TurnMoments:
    """Of turns, before the first update: what the critic explains of their returns, and their advantages."""

    explained: Explained
    adv: tuple[Moments, ...]
    """With each of `SelfAC.lambdas`."""

    def __add__(self, other: TurnMoments) -> TurnMoments:
        adv = tuple(mine + theirs for mine, theirs in zip(self.adv, other.adv, strict=True))
        return TurnMoments(self.explained + other.explained, adv)


@dataclass(frozen=True)
class SelfAC(TurnClip, KLPenalty, Normalized, Algorithm[TurnCredit]):
    """Self-AC: the policy's own body is the critic of turns, trained in the same pass.

    loss = alpha critic + (1 - alpha) policy + kl_coef KL, each a mean over turns (KL: over tokens).
    """

    group: int = 1
    """Episodes per task. The critic is the baseline, so distinct tasks teach more than repeated ones."""
    alpha: float = 0.5
    """Share of the critic in the loss."""
    discount: float = 1.0
    """Discount per turn. Below 1, turns that only take time cost value."""
    gae_lambda: float | None = None
    """GAE lambda; if not set, 0.9 in updates of whose returns the critic explained a tenth or more before, and else 1.
    1 compares whole returns with the value; with less, values stand in for later rewards. Below 0.8 it fails
    while the critic is poor."""
    td_max: int = 5
    """The critic learns the mean of the TD(1) to TD(td_max) losses."""
    terminal_target: TerminalTarget = TerminalTarget.OUTCOME
    """Target of V after a terminated episode's last turn; ``outcome`` makes it a verifier of finished work."""
    td_grad: TDGrad = TDGrad.DETACH
    """``residual`` lets the gradient through the targets too, as in the source's formula."""
    literal: bool = False
    """Exactly as in the source: the last turn bootstraps from V_n, a truncated episode counts as ended, and every
    episode is a sequence of its own, also where a group shares its beginning. Without trees of actions to search."""
    backup: Backup = Backup.MEAN
    """Value of a state of a search tree, from the actions tried in it; ``max`` is policy improvement, biased upwards.
    """
    baseline: TurnBaseline = TurnBaseline.VALUE
    """``sibling_mean`` needs states in which several actions were tried: an only child has advantage 0."""
    normalize: AdvantageScale = AdvantageScale.LIFT
    """Divide the batch's advantages by their standard deviation, and centre them where their mean is below 0; ``std``,
    as in the source, never centres them, ``whiten`` always."""
    std_floor: float | None = None
    """Smallest standard deviation to divide by: 0.1 if not set, for rewards from 0 to 1; 0 is the source's. When almost
    all episodes succeed, advantages are mostly the critic's error, and dividing by their tiny deviation can undo what
    was learned."""
    freeze_adv: bool = False
    """Keep the advantages of the first pass; otherwise they follow the current values."""
    value_clip: float = math.inf
    """How far a value may move from that of the first pass before its loss is clipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.alpha <= 1, f"alpha must lie in 0..1, not {self.alpha}")
        along_trees = self.backup == Backup.MAX or self.baseline == TurnBaseline.SIBLING_MEAN
        require(
            not (self.literal and along_trees),
            "backup max and baseline sibling_mean compare what was tried in a state, and with literal every episode is "
            "a sequence of its own: leave one out",
        )
        require_floor(self.std_floor, self.normalize)
        require(self.td_max >= 1, f"td_max must be at least 1, not {self.td_max}")

    @property
    def needs(self) -> Needs:
        return Needs(
            critic=True,
            search=not self.literal,
            replay=True,
            reference=self.kl_coef > 0,
            moments=self.over_update(self.normalize != AdvantageScale.NONE or len(self.lambdas) > 1),
        )

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.TURN, Methodology.TEMPORAL_DIFFERENCE)

    @property
    def values(self) -> ValueMeaning:
        return ValueMeaning(self.discount, verifies=self.terminal_target == TerminalTarget.OUTCOME)

    @property
    def lambdas(self) -> tuple[float, ...]:
        """Lambda while the critic explains little of the returns, and then, where it follows the critic, the other."""
        if self.gae_lambda is not None:
            return (self.gae_lambda,)
        return (1.0,) if self.literal else (1.0, KNOWN_LAMBDA)

    def chosen(self, explained: Explained) -> int:
        """Which of `lambdas` an update has."""
        return -1 if explained.share >= KNOWN else 0

    def turns(self, batch: Batch) -> Turns:
        """What the formulas run over: the tree, or with ``literal`` each episode on its own, as the source has it."""
        return Turns.apart(scored(batch)) if self.literal else Turns.shared(scored(batch))

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> TurnCredit:
        value_S, turns = state_values(old, "Self-AC").detach(), self.turns(batch)
        return self.credited(turns, value_S, self.chosen(self.explained(turns, value_S)))

    def credited(self, turns: Turns, value_S: Tensor, which: int, over: Moments | None = None) -> TurnCredit:
        gae_lambda = self.lambdas[which]
        adv_P = self.advantage(turns.batch, value_S[turns.state_Q], gae_lambda) if self.freeze_adv else None
        return TurnCredit(value_S, adv_P, over, gae_lambda)

    def explained(self, turns: Turns, value_S: Tensor) -> Explained:
        """What the values explain of the returns."""
        value_Q = value_S[turns.state_Q]
        left_P = self.left(turns.batch, value_Q, 1.0)
        return Explained.of(left_P, left_P + value_Q[turns.batch.state_A], turns.batch.count_A)

    def left(self, batch: Batch, value_S: Tensor, gae_lambda: float) -> Tensor:
        """left_A: the lambda-return minus the value. The last value completes the return of a cut episode."""
        return turn_advantage(batch, value_S, self.end_value(batch, value_S), self.discount, gae_lambda, self.backup)

    def loss(self, batch: Batch, new: Forward, credit: TurnCredit, /) -> Loss:
        turns = self.turns(batch)
        value_Q, chains, count_P = state_values(new, "Self-AC")[turns.state_Q], turns.batch, turns.batch.count_A
        current_P = self.advantage(chains, value_Q.detach(), credit.gae_lambda)
        adv_P = current_P if credit.adv_P is None else credit.adv_P
        critic = self.critic_loss(chains, value_Q, credit.value_S[turns.state_Q])
        scaled_P = scale_advantage(adv_P, count_P, self.normalize, self.std_floor, credit.over)
        weight_P = mean_weight(count_P * said(batch)[turns.action_P])
        sums = map(turns.per_action, (*sides(scaled_P, weight_P), weight_P))
        policy, clip_fraction = self.turn_loss(batch, new.logp_T, *sums)
        before_P = value_Q.detach()[chains.state_A]
        stats = floats(policy=policy, critic=critic, clip_fraction=clip_fraction)
        stats |= critic_stats(before_P, adv_P, before_P + self.left(chains, value_Q.detach(), 1.0), count_P)
        if len(self.lambdas) > 1:
            stats["gae_lambda"] = credit.gae_lambda
        weight_T = batch.to_tokens(turns.per_action(count_P)).double()
        return self.penalised(self.alpha * critic + (1 - self.alpha) * policy, batch, new, weight_T, stats, mean=True)

    @without_gradient
    def moments(self, batch: Batch, credit: TurnCredit) -> TurnMoments:
        turns, value_S = self.turns(batch), credit.value_S
        each = [self.advantage(turns.batch, value_S[turns.state_Q], gae_lambda) for gae_lambda in self.lambdas]
        adv = tuple(Moments.of(adv_P, turns.batch.count_A) for adv_P in each)
        return TurnMoments(self.explained(turns, value_S), adv)

    @without_gradient
    def scaled(self, batch: Batch, credit: TurnCredit, over: TurnMoments) -> TurnCredit:
        which = self.chosen(over.explained)
        return self.credited(self.turns(batch), credit.value_S, which, over.adv[which])

    @without_gradient
    def action_advantage(self, batch: Batch, credit: TurnCredit) -> Tensor:
        turns = self.turns(batch)
        value_Q = credit.value_S[turns.state_Q]
        adv_P = self.advantage(turns.batch, value_Q, credit.gae_lambda) if credit.adv_P is None else credit.adv_P
        return turns.mean_per_action(adv_P) if self.literal else adv_P

    def critic_only(self, batch: Batch, new: Forward) -> Tensor:
        turns = self.turns(batch)
        value_Q = state_values(new, "Self-AC")[turns.state_Q]
        return self.alpha * self.critic_loss(turns.batch, value_Q, value_Q.detach())

    def advantage(self, batch: Batch, value_S: Tensor, gae_lambda: float | None = None) -> Tensor:
        """A_A = Q - V with lambda-returns Q; minus the mean A of the siblings for ``sibling_mean``. No gradient.

        Without a ``gae_lambda`` it is the first of `lambdas`.
        """
        adv_A = self.left(batch, value_S, self.lambdas[0] if gae_lambda is None else gae_lambda)
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
