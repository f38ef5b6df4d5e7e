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

import torch
from torch import Tensor

from agents.tree import Batch, Forward
from algorithms.base import Algorithm, Loss, Sampling, floats, reference_logp, require
from algorithms.formulas.groups import Aggregation, Scale, group_advantage, token_weight
from algorithms.formulas.maths import KL, bounded, clipped, kl_divergence, surrogate, weighted_mean
from algorithms.formulas.ranges import require_company, require_usual
from algorithms.formulas.returns import Rows


class Norm(StrEnum):
    """What a group does to a return: subtract the mean, or divide by the deviation as well."""

    MEAN = "mean_norm"
    MEAN_STD = "mean_std_norm"


class Statistics(StrEnum):
    """What the episodes' statistics are taken over: rows, so that long episodes count more, or episodes."""

    ROWS = "rows"
    EPISODES = "episodes"


@dataclass(frozen=True)
class RowSums:
    """Sums over the rows that share an action or a token."""

    adv_A: Tensor
    """Mean advantage."""
    plus_T: Tensor
    """Weight times advantage, where it is positive."""
    minus_T: Tensor
    """The same where it is negative."""
    count_T: Tensor
    """Rows."""
    weight_T: Tensor
    """Weights."""
    met: float
    """Share of the rows whose state was met more than once in the task, so that A_S has something to compare."""


@dataclass(frozen=True)
class GiGPO(Algorithm[RowSums]):
    """loss = clipped surrogate of A_E + omega A_S, token by token, + kl_coef KL."""

    group: int = 8
    """Episodes per task."""
    omega: float = 1.0
    """Weight of the comparison within a state."""
    discount: float = 0.95
    """Worth of a reward one turn later, in the comparison within a state."""
    norm: Norm = Norm.MEAN
    """What both comparisons do to a return."""
    statistics: Statistics = Statistics.ROWS
    """What the mean of a task is taken over: its turns (the authors' code), or its episodes."""
    std_eps: float = 1e-6
    """Added to the deviation."""
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    """How token losses become one number; a sequence is a turn here."""
    length_norm: float = 512.0
    """The constant length that seq-mean-token-sum-norm divides by, for instance the token limit of a turn."""
    clip_low: float = 0.2
    """A ratio below 1 - clip_low stops teaching against a bad token."""
    clip_high: float = 0.2
    """A ratio above 1 + clip_high stops teaching for a good token."""
    dual_clip: float = 3.0
    """Largest ratio that counts against a bad token; inf switches it off."""
    kl_coef: float = 0.0
    """Weight of the divergence from the reference policy (LoRA off)."""
    kl: KL = KL.K3
    """How that divergence is estimated."""

    def __post_init__(self) -> None:
        require_usual(self)
        require_company(self.group)
        require(self.omega >= 0, f"omega must not be negative, but is {self.omega}")

    @property
    def sampling(self) -> Sampling:
        return Sampling(group=self.group)

    @torch.no_grad()
    def credit(self, batch: Batch, old: Forward) -> RowSums:
        rows = Rows.of(batch, batch.count_L * ~batch.fault_L)
        episode_L, state_P = self.episode_advantage(batch, rows), self.state_advantage(batch, rows)
        adv_P = episode_L[rows.leaf_P] + self.omega * state_P
        length_P = batch.per_action(torch.ones_like(batch.old_logp_T, dtype=torch.float64))[rows.action_P]
        weight_P = rows.count_P * token_weight(self.aggregation, length_P, rows.count_P, self.length_norm)
        met_P = _count(anchors(batch)[batch.state_A[rows.action_P]], rows.count_P) > 1

        def share(x_P: Tensor) -> Tensor:
            return rows.per_action(x_P, batch.state_A.numel())

        plus_A, minus_A = share(weight_P * adv_P.clamp_min(0)), share(weight_P * adv_P.clamp_max(0))
        return RowSums(
            share(adv_P * rows.count_P) / share(rows.count_P).clamp_min(1),
            batch.to_tokens(plus_A),
            batch.to_tokens(minus_A),
            batch.to_tokens(share(rows.count_P)),
            batch.to_tokens(share(weight_P)),
            float(weighted_mean(met_P.double(), rows.count_P.double())),
        )

    def action_advantage(self, batch: Batch, credit: RowSums) -> Tensor:
        return credit.adv_A

    def loss(self, batch: Batch, new: Forward, credit: RowSums, /) -> Loss:
        delta_T = bounded(new.logp_T - batch.old_logp_T)
        sides = (credit.plus_T, credit.minus_T, self.clip_low, self.clip_high, self.dual_clip)
        policy = total = surrogate(delta_T, *sides).sum()
        stats = floats(
            policy=policy,
            clip_fraction=weighted_mean(clipped(delta_T, *sides).double(), credit.count_T.double()),
            entropy=weighted_mean(new.entropy_T, credit.weight_T),
            states_met_again=credit.met,
        )
        if self.needs_reference or batch.ref_logp_T is not None:
            kl_T = kl_divergence(new.logp_T, reference_logp(batch), self.kl)
            total = total + self.kl_coef * (credit.weight_T * kl_T).sum()
            stats["kl"] = float(weighted_mean(kl_T.detach(), credit.weight_T))
        return Loss(total, stats)

    def episode_advantage(self, batch: Batch, rows: Rows) -> Tensor:
        """A_E of a leaf: its return in the group of its task. 0 in a group of one and where all returns are equal."""
        count_L = batch.count_L * ~batch.fault_L
        turns_L = torch.zeros_like(count_L).index_add(0, rows.leaf_P, torch.ones_like(rows.leaf_P))
        weight_L = count_L * (turns_L if self.statistics == Statistics.ROWS else turns_L.clamp_max(1))
        return group_advantage(batch.return_L, weight_L, batch.tree_L, scale=self.scale, std_eps=self.std_eps)

    def state_advantage(self, batch: Batch, rows: Rows) -> Tensor:
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
