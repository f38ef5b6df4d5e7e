"""GiGPO: a turn is compared with the turns taken in the same state, and its episode with those of the same task.

    A = A_E + omega A_S   A_E: return of the episode, in the group of the task's episodes
                          A_S: discounted rest of the episode, in the group of the task's turns with equal observation

A row is a turn of one episode, shared or not: an action of the tree stands for one row per episode below it, and these
differ in what was paid later. A token's loss needs only the sums of its rows' positive and negative advantages.

Source: Group-in-Group Policy Optimization (arXiv 2505.10978) and the authors' code. No critic.

Legend of the shape suffixes: T tokens, A actions = turns, S states, L leaves = episodes, P rows = turns of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from agents.tree import Batch, Forward
from algorithms.base import Algorithm, Loss, Needs, Sampling, require, without_gradient
from algorithms.formulas.groups import Scale, group_advantage
from algorithms.formulas.maths import weighted_mean
from algorithms.formulas.policy_loss import TokenLoss, TokenSums
from algorithms.formulas.ranges import require_company, require_usual
from algorithms.formulas.returns import TurnRows

if TYPE_CHECKING:
    from torch import Tensor


class Norm(StrEnum):
    """What a group does to a return: subtract the mean, or divide by the deviation as well."""

    MEAN = "mean_norm"
    MEAN_STD = "mean_std_norm"


class Statistics(StrEnum):
    """What the episodes' statistics are taken over: rows, so that long episodes count more, or episodes."""

    ROWS = "rows"
    EPISODES = "episodes"


@dataclass(frozen=True)
class RowSums(TokenSums):
    """Sums over the rows that share an action or a token."""

    adv_A: Tensor
    """Mean advantage."""
    met: float
    """Share of the rows whose state was met more than once in the task, so that A_S has something to compare."""


@dataclass(frozen=True)
class GiGPO(TokenLoss, Algorithm[RowSums]):
    """GiGPO: group advantages of the episode plus those of the turns taken in the same state.

    loss = clipped surrogate of A_E + omega A_S, token by token, + kl_coef KL. A sequence is a turn here.
    """

    group: int = 8
    """Episodes per task."""
    omega: float = 1.0
    """Weight of the advantages within a state."""
    discount: float = 0.95
    """Discount per turn, for the returns that are compared within a state."""
    norm: Norm = Norm.MEAN
    """Normalisation of both comparisons."""
    statistics: Statistics = Statistics.ROWS
    """Basis of a task's mean: its turns (the authors' code), or its episodes."""
    std_eps: float = 1e-6
    """Added to the standard deviation."""

    def __post_init__(self) -> None:
        require_usual(self)
        require_company(self.group)
        require(self.omega >= 0, f"omega must not be negative, but is {self.omega}")

    @property
    def needs(self) -> Needs:
        return Needs(reference=self.kl_coef > 0)

    @property
    def sampling(self) -> Sampling:
        return Sampling(group=self.group)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> RowSums:
        rows = TurnRows.of(batch, batch.count_L * ~batch.fault_L)
        episode_L, state_P = self.episode_advantage(batch, rows), self.state_advantage(batch, rows)
        adv_P = episode_L[rows.leaf_P] + self.omega * state_P
        length_P = batch.per_action(torch.ones_like(batch.old_logp_T, dtype=torch.float64))[rows.action_P]
        weight_P = self.weight(length_P, rows.count_P)
        met_P = _count(anchors(batch)[batch.state_A[rows.action_P]], rows.count_P) > 1

        def share(x_P: Tensor) -> Tensor:
            return rows.per_action(x_P, batch.state_A.numel())

        plus_A, minus_A = share(weight_P * adv_P.clamp_min(0)), share(weight_P * adv_P.clamp_max(0))
        return RowSums(
            plus_T=batch.to_tokens(plus_A),
            minus_T=batch.to_tokens(minus_A),
            count_T=batch.to_tokens(share(rows.count_P)),
            weight_T=batch.to_tokens(share(weight_P)),
            adv_A=share(adv_P * rows.count_P) / share(rows.count_P).clamp_min(1),
            met=float(weighted_mean(met_P.double(), rows.count_P.double())),
        )

    def action_advantage(self, batch: Batch, credit: RowSums) -> Tensor:
        return credit.adv_A

    def loss(self, batch: Batch, new: Forward, credit: RowSums, /) -> Loss:
        return self.token_loss(batch, new, credit, {"states_met_again": credit.met})

    def episode_advantage(self, batch: Batch, rows: TurnRows) -> Tensor:
        """A_E of a leaf: its return in the group of its task. 0 in a group of one and where all returns are equal."""
        count_L = batch.count_L * ~batch.fault_L
        turns_L = torch.zeros_like(count_L).index_add(0, rows.leaf_P, torch.ones_like(rows.leaf_P))
        weight_L = count_L * (turns_L if self.statistics == Statistics.ROWS else turns_L.clamp_max(1))
        return group_advantage(batch.return_L, weight_L, batch.tree_L, scale=self.scale, std_eps=self.std_eps)

    def state_advantage(self, batch: Batch, rows: TurnRows) -> Tensor:
        """A_S of each row: the rest of its episode in the group of its state's rows. 0 where a state has one row."""
        return_P = rows.rest(batch.reward_A[rows.action_P].double(), self.discount)
        scored_P = rows.count_P * batch.return_L.isfinite()[rows.leaf_P]
        anchor_P = anchors(batch)[batch.state_A[rows.action_P]]
        return group_advantage(return_P, scored_P, anchor_P, scale=self.scale, std_eps=self.std_eps)

    @property
    def scale(self) -> Scale:
        return Scale.GROUP if self.norm == Norm.MEAN_STD else Scale.NONE


def anchors(batch: Batch) -> Tensor:
    """anchor_S: a number that two states share when they are of one task and the agent observed the same in both.

    A state without an anchor is like no other.
    """
    known: dict[tuple[int, str | int], int] = {}
    pairs = enumerate(zip(batch.tree_S.tolist(), batch.anchor_S, strict=True))
    numbers = [known.setdefault((tree, anchor or state), len(known)) for state, (tree, anchor) in pairs]
    return torch.tensor(numbers, dtype=torch.long, device=batch.tree_S.device)


def _count(key_P: Tensor, count_P: Tensor) -> Tensor:
    """How many samples have the key of each row."""
    keys = int(key_P.max()) + 1 if key_P.numel() else 0
    return torch.zeros(keys, dtype=count_P.dtype, device=key_P.device).index_add(0, key_P, count_P)[key_P]
