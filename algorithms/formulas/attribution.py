"""From GOOD and BAD labels to what every step of every episode is credited with (ADCA-GRPO, AgentEvolver).

Invariant: an episode is a row, its actions are the row's first K columns, and a row of count c is c episodes. Padding,
rows of count 0 and episodes without a complete set of labels are in no statistic of the labels, and credited 0 there.

    x_j = what the label of step j is worth          z = (x - mean) / std over the steps of the group
    o   = (return - mean) / std over the group       c_j = alpha z_j + beta o [j is the last step]
    A_k = c_k + c_(k+1) + ... + c_K

Population statistics in float64. An action that several episodes share is a step of each of them, with a credit of its
own in each: their lengths and outcomes differ.

Legend of the shape suffixes: L leaves = episodes, K steps of the longest episode, G groups = trees, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch

from agents.tree import Batch, Tensor
from algorithms.formulas.groups import group_mean, spread
from algorithms.formulas.maths import SAME
from algorithms.formulas.token_gae import in_time


class Scheme(StrEnum):
    """How labels become rewards of steps: +-fix_base each, or shares of the outcome."""

    DECOUPLE = "decouple"
    ALLOCATION = "allocation"


class SkipType(StrEnum):
    """Which episodes need no judge: none, those without a GRPO advantage, or those with a return of 0 or less.

    All steps of a skipped episode count as GOOD if it succeeded, else as BAD.
    """

    NONE = "none"
    SKIP_SMALL_ADV = "skip_small_adv"
    SKIP_ALL_NEG = "skip_all_neg"


class OrmDistribution(StrEnum):
    """Where the outcome is paid: with the last step, with every step, or not at all (labels only, without alpha)."""

    LAST_STEP = "last_step"
    ALL_STEPS = "all_steps"
    ONLY_PRM = "only_prm"


class ScoreSource(StrEnum):
    """What a judge is told of how an episode went: its return, 0..1 as -1..1, or its advantage in its group."""

    TOKEN_LEVEL_REWARDS = "token_level_rewards"
    ADVANTAGES = "advantages"


@dataclass(frozen=True)
class Steps:
    """Labelled episodes as rows."""

    said_LK: Tensor
    """True where there is a step."""
    good_LK: Tensor
    """True where it is GOOD; read only in rows that were judged."""
    judged_L: Tensor
    """True where every step has its label."""
    return_L: Tensor
    success_L: Tensor
    """The environment's verdict, True or False; read only by the scheme that weighs by it."""
    count_L: Tensor
    """How many episodes a row is; 0 leaves it out of everything."""
    tree_L: Tensor
    trees: int

    def lengths(self) -> Tensor:
        """length_L: how many steps each episode has."""
        return self.said_LK.sum(1)

    def seen(self) -> Tensor:
        """seen_LK: True at the steps that take part in the statistics of labels."""
        return self.said_LK & (self.judged_L & (self.count_L > 0))[:, None]


def path_matrix(batch: Batch) -> Tensor:
    """action_LK: the actions on the path of each leaf, from the root on; -1 after the last one."""
    action_P, leaf_P = batch.pairs()
    order_P, place_P, length_L = in_time(leaf_P, batch.leaf_L.numel())
    action_LK = action_P.new_full((length_L.numel(), int(length_L.max()) if length_L.numel() else 0), -1)
    action_LK[leaf_P[order_P], place_P] = action_P[order_P]
    return action_LK


def label_rewards(steps: Steps, base: float) -> Tensor:
    """x_LK = base for GOOD, -base for BAD (scheme ``decouple``)."""
    return base * (2 * steps.good_LK.double() - 1) * steps.seen()


def allocated_rewards(steps: Steps, consistent: float, bad_in_success: float, good_in_failure: float) -> Tensor:
    """x_LK: +1 of a success and -1 of a failure, divided among the steps by their weights (scheme ``allocation``).

    A label that agrees with the outcome weighs ``consistent``; nothing is paid where all weights are 0.
    """
    won_L1 = steps.success_L[:, None]
    weight_LK = step_weights(steps, consistent, bad_in_success, good_in_failure)
    total_L1 = weight_LK.sum(1, keepdim=True)
    share_LK = weight_LK / torch.where(total_L1 > SAME, total_L1, torch.inf)
    return torch.where(won_L1, share_LK, -share_LK)


def step_weights(steps: Steps, consistent: float, bad_in_success: float, good_in_failure: float) -> Tensor:
    """weight_LK of the scheme ``allocation``, before it is made to sum to 1."""
    won_L1 = steps.success_L[:, None]
    # Of float64 from the beginning: torch.where of two plain numbers is float32.
    other_L1 = bad_in_success * won_L1.double() + good_in_failure * (~won_L1).double()
    agrees_LK = (steps.good_LK == won_L1).double()
    return (consistent * agrees_LK + other_L1 * (1 - agrees_LK)) * steps.seen()


def standardised(x_LK: Tensor, steps: Steps, equal_trajectories: bool) -> Tensor:
    """z_LK = (x - mean) / (std + 1e-12) over the steps of each group; exactly 0 where all x of a group are the same.

    With ``equal_trajectories`` every episode weighs the same, sqrt(var + 1e-8); else every step, max(std, 1e-8).
    """
    seen_LK = steps.seen()
    weight_LK = steps.count_L[:, None] * seen_LK.double()
    if equal_trajectories:
        weight_LK = weight_LK / steps.lengths().clamp_min(1)[:, None]
    group_LK = steps.tree_L[:, None].expand(x_LK.shape)

    def mean(y_LK: Tensor) -> Tensor:
        return group_mean(y_LK.reshape(-1), weight_LK.reshape(-1), group_LK.reshape(-1), steps.trees)[group_LK]

    away_LK = x_LK - mean(x_LK)
    variance_LK = mean(away_LK.square())
    std_LK = (variance_LK + SAME).sqrt() if equal_trajectories else variance_LK.sqrt().clamp_min(SAME)
    return torch.where(seen_LK & (variance_LK > SAME**2), away_LK / (std_LK + 1e-12), 0)


def outcome_scores(steps: Steps) -> Tensor:
    """o_L = (return - mean) / (std + 1e-12) within each group; exactly 0 where all returns are the same."""
    count_L, tree_L, trees = steps.count_L.double(), steps.tree_L, steps.trees
    return_L = torch.where(count_L > 0, steps.return_L, 0).double()
    away_L = return_L - group_mean(return_L, count_L, tree_L, trees)[tree_L]
    std_L = group_mean(away_L.square(), count_L, tree_L, trees).sqrt()[tree_L]
    alive_L = (spread(return_L, count_L, tree_L, trees) > SAME)[tree_L] & (count_L > 0)
    return torch.where(alive_L, away_L / (std_L + 1e-12), 0)


def fused(
    steps: Steps, z_LK: Tensor, o_L: Tensor, alpha: float, beta: float, where: OrmDistribution, length_norm: bool
) -> Tensor:
    """c_LK = alpha z + beta o on the last step or on all; with ``length_norm`` divided by the root of the length."""
    length_L1 = steps.lengths()[:, None]
    if where == OrmDistribution.ONLY_PRM:
        c_LK = z_LK
    else:
        place_K = torch.arange(z_LK.shape[1], device=z_LK.device)
        paid_LK = steps.said_LK if where == OrmDistribution.ALL_STEPS else place_K == length_L1 - 1
        c_LK = alpha * z_LK + beta * o_L[:, None] * paid_LK
    return c_LK / length_L1.clamp_min(1).double().sqrt() if length_norm else c_LK


def suffix_sums(c_LK: Tensor, said_LK: Tensor) -> Tensor:
    """A_k = the sum of c_j over the steps j >= k of the episode, undiscounted; 0 after the last step."""
    return c_LK.flip(1).cumsum(1).flip(1) * said_LK
