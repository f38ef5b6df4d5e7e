"""GiGPO: a turn is compared with the turns taken in the same state, and its episode with those of the same task.

    A = A_E + omega A_S   A_E: return of the episode, in the group of the task's episodes
                          A_S: discounted rest of the episode, in the group of the task's turns with equal observation

A row is a turn of one episode, shared or not: an action of the tree stands for one row per episode below it, and these
differ in what was paid later. A token's loss needs only the sums of its rows' positive and negative advantages.

Source: Group-in-Group Policy Optimization (arXiv 2505.10978) and the authors' code. No critic.

Legend of the shape suffixes: T tokens, A actions = turns, S states, L leaves = episodes, P rows = turns of episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from typing import ClassVar

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.base import Acts, Algorithm, Loss, require, require_company, without_gradient
from algorithms.credit_kind import CreditKind, Granularity, Methodology
from algorithms.formulas.groups import Scale, group_advantage, turn_lengths
from algorithms.formulas.maths import sides, weighted_mean
from algorithms.formulas.policy_loss import TokenLoss, TokenSums
from algorithms.formulas.returns import TurnRows


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

    ACTS: ClassVar[Acts] = {
        "std_eps": (lambda a: a.norm == Norm.MEAN_STD, "norm mean_std_norm"),
        "discount": (lambda a: a.omega > 0, "omega above 0"),
        "similarity": (lambda a: a.omega > 0, "omega above 0"),
    }

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
    invalid_cost: float = 0.0
    """What an action that the environment refused costs, off its reward (the authors: 0.1)."""
    similarity: float = 1.0
    """Likeness of two observations from which on they are one state (the authors: 0.95); 1: they must be equal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_company(self.group)
        require(self.omega >= 0, f"omega must not be negative, but is {self.omega}")
        require(self.invalid_cost >= 0, f"invalid_cost must not be negative, but is {self.invalid_cost}")
        require(0 < self.similarity <= 1, f"similarity must lie above 0 and up to 1, not {self.similarity}")

    @property
    def credit_kind(self) -> CreditKind:
        return CreditKind(Granularity.TURN if self.omega else Granularity.EPISODE, Methodology.MONTE_CARLO)

    @without_gradient
    def credit(self, batch: Batch, old: Forward) -> RowSums:
        batch = self.charged(batch)
        rows = TurnRows.of(batch, batch.count_L * ~batch.fault_L)
        episode_L, state_P = self.episode_advantage(batch, rows), self.state_advantage(batch, rows)
        adv_P = episode_L[rows.leaf_P] + self.omega * state_P
        length_P = turn_lengths(batch)[rows.action_P]
        weight_P = self.weight(length_P, rows.count_P)
        met_P = _count(anchors(batch, self.similarity)[batch.state_A[rows.action_P]], rows.count_P) > 1

        def share(x_P: Tensor) -> Tensor:
            return batch.to_tokens(rows.per_action(x_P))

        plus_T, minus_T, count_T, weight_T = map(share, (*sides(adv_P, weight_P), rows.count_P, weight_P))
        met = float(weighted_mean(met_P.double(), rows.count_P.double()))
        return RowSums(plus_T, minus_T, count_T, weight_T, rows.mean_per_action(adv_P), met)

    def charged(self, batch: Batch) -> Batch:
        """The batch whose rewards and returns are less what refused actions cost."""
        if not self.invalid_cost or batch.invalid_A is None:
            return batch
        cost_A = self.invalid_cost * batch.invalid_A.double()
        return_L = batch.return_L.double() - batch.per_episode(cost_A)
        return replace(batch, reward_A=batch.reward_A.double() - cost_A, return_L=return_L)

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
        anchor_P = anchors(batch, self.similarity)[batch.state_A[rows.action_P]]
        return group_advantage(return_P, scored_P, anchor_P, scale=self.scale, std_eps=self.std_eps)

    @property
    def scale(self) -> Scale:
        return Scale.GROUP if self.norm == Norm.MEAN_STD else Scale.NONE


def anchors(batch: Batch, similarity: float = 1.0) -> Tensor:
    """anchor_S: a number that two states share when they are of one task and the agent observed the same in both.

    Below a ``similarity`` of 1 the same is what is as like as that, by difflib's ratio of their tokens (the authors':
    of their letters); a state joins the first group of its task whose first state it is like. One without an anchor is
    like no other.
    """
    known: dict[tuple[int, str | int], int] = {}
    trees = batch.tree_S.tolist()
    names = _alike(batch, trees, similarity) if similarity < 1 else list(batch.anchor_S)
    pairs = enumerate(zip(trees, names, strict=True))
    numbers = [known.setdefault((tree, anchor or state), len(known)) for state, (tree, anchor) in pairs]
    return torch.tensor(numbers, dtype=torch.long, device=batch.tree_S.device)


def _alike(batch: Batch, trees: Sequence[int], similarity: float) -> list[str]:
    """The anchor of the first state of its group, for each state in which the agent acted."""
    last_S, pos_T, token_T = batch.last_S.tolist(), batch.pos_T.tolist(), batch.token_T.tolist()
    before_A, acted = batch.final_tokens().tolist(), set(batch.state_A.tolist())
    first: dict[int, list[tuple[list[int], str]]] = {}
    names = list(batch.anchor_S)
    for state, (tree, prev) in enumerate(zip(trees, batch.prev_S.tolist(), strict=True)):
        if not names[state] or state not in acted:
            continue
        start = -1 if prev < 0 else pos_T[before_A[prev]]
        seen = token_T[last_S[state] - (pos_T[last_S[state]] - start) + 1 : last_S[state] + 1]
        groups = first.setdefault(tree, [])
        like = (name for tokens, name in groups if SequenceMatcher(None, tokens, seen, False).ratio() >= similarity)
        if (name := next(like, None)) is None:
            groups.append((seen, names[state]))
        else:
            names[state] = name
    return names


def _count(key_P: Tensor, count_P: Tensor) -> Tensor:
    """How many samples have the key of each row."""
    keys = int(key_P.max()) + 1 if key_P.numel() else 0
    return torch.zeros(keys, dtype=count_P.dtype, device=key_P.device).index_add(0, key_P, count_P)[key_P]
