"""Episodes of one task compared with each other, and what each of their tokens weighs in the loss.

Invariant: a group is the episodes of one tree; statistics never mix tasks; a leaf of count c is c episodes, and one of
count 0 does not exist.

Legend of the shape suffixes: G groups = trees, T tokens, A actions, L leaves = episodes, P rows = turns of episodes.
"""

from __future__ import annotations

from enum import StrEnum

import torch

from agents.tree import Batch, Tensor
from algorithms.formulas.maths import SAME, AdvantageScale, Moments, mean_and_variance, scale_advantage, varies


class Baseline(StrEnum):
    """What a return is compared with: the mean of its group, of the others in it (RLOO), or nothing (REINFORCE++).

    ``length`` is the mean of the group in which an episode weighs as much as it has tokens (OPO); ``second_best``
    credits the best episode of a group alone, with what it is better by than the second (pass@k training).
    """

    MEAN = "mean"
    LEAVE_ONE_OUT = "leave_one_out"
    LENGTH = "length"
    SECOND_BEST = "second_best"
    NONE = "none"


class Scale(StrEnum):
    """What the difference is divided by: the deviation in the group, in the batch, or nothing (RLOO, Dr. GRPO).

    ``tokens`` centres and divides over all sampled tokens of the batch, so that long episodes count more (REINFORCE++).
    """

    GROUP = "group"
    BATCH = "batch"
    NONE = "none"
    TOKENS = "tokens"


class Aggregation(StrEnum):
    """How token losses become one number, over G episodes of ``len`` sampled tokens each."""

    TOKEN_MEAN = "token-mean"
    """Every token weighs 1 / sum of all len (DAPO)."""
    TOKEN_SUM = "token-sum"
    """1."""
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    """1 / G."""
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"
    """1 / (G * a constant length) (Dr. GRPO)."""
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    """1 / (G len) (the GRPO paper)."""


def group_sum(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """sum_G of the entries ``x`` (episodes or turns), each of which lies in the group that ``group`` says."""
    return x.new_zeros(groups).index_add(0, group, x)


def group_mean(x: Tensor, weight: Tensor, group: Tensor, groups: int) -> Tensor:
    """mean_G, an entry of weight c being c entries; 0 for a group without weight."""
    total_G = group_sum(weight, group, groups)
    return group_sum(weight * x, group, groups) / torch.where(total_G > 0, total_G, 1)


def group_advantage(
    return_L: Tensor,
    count_L: Tensor,
    tree_L: Tensor,
    baseline: Baseline = Baseline.MEAN,
    scale: Scale = Scale.GROUP,
    std_eps: float = 1e-6,
    over: Moments | None = None,
) -> Tensor:
    """A_L = (R - mean) / (std + eps) in each group [GRPO], n / (n - 1) (R - mean) for leave-one-out [RLOO].

    Float64 statistics with the unbiased deviation. Exactly 0, not rounding noise divided by eps, in a group of one
    and in a group whose returns differ by no more than 1e-8. A return that is not finite was not scored: it has
    advantage 0 and no part in the statistics.
    """
    groups = int(tree_L.max()) + 1 if tree_L.numel() else 0
    counted_L = count_L * return_L.isfinite()
    weight_L = counted_L.double()
    return_L = torch.where(counted_L > 0, return_L, 0).double()
    n_G = group_sum(weight_L, tree_L, groups)
    mean_G = group_mean(return_L, weight_L, tree_L, groups)
    adv_L = return_L - mean_G[tree_L]
    if baseline == Baseline.LEAVE_ONE_OUT:
        adv_L = adv_L * (n_G / (n_G - 1).clamp_min(1))[tree_L]
    if scale == Scale.GROUP:
        square_L = weight_L * (return_L - mean_G[tree_L]).square()
        std_G = (group_sum(square_L, tree_L, groups) / (n_G - 1).clamp_min(1)).sqrt()
        adv_L = adv_L / (std_G + std_eps)[tree_L]
    elif scale == Scale.BATCH:
        variance = mean_and_variance(return_L, weight_L)[1] if over is None else over.variance
        adv_L = adv_L / (variance.sqrt() + std_eps)
    return torch.where(teaches(return_L, counted_L, tree_L), adv_L, 0)


def teaches(return_L: Tensor, count_L: Tensor, tree_L: Tensor) -> Tensor:
    """True for the scored episodes of a group whose returns differ: all others have advantage 0."""
    groups = int(tree_L.max()) + 1 if tree_L.numel() else 0
    counted_L = count_L * return_L.isfinite()
    alive_G = spread(return_L, counted_L, tree_L, groups) > SAME
    return alive_G[tree_L] & (counted_L > 0)


def whitened(adv: Tensor, weight: Tensor, over: Moments | None = None) -> Tensor:
    """(A - mean) / sqrt(var + 1e-8), an entry of weight w being w tokens; 0 without weight, and where all are equal.

    Mean and variance are those of ``over``, where it is given.
    """
    if not varies(adv, weight, over):
        return torch.zeros_like(adv)
    return torch.where(weight > 0, scale_advantage(adv, weight, AdvantageScale.WHITEN, over=over), 0)


def length_weighted_advantage(return_L: Tensor, length_L: Tensor, count_L: Tensor, tree_L: Tensor) -> Tensor:
    """A_L = R - sum(len R) / sum(len) in each group, the baseline of least variance [OPO, arXiv 2505.23585].

    Exactly 0 where `group_advantage` is.
    """
    groups = int(tree_L.max()) + 1 if tree_L.numel() else 0
    live_L = teaches(return_L, count_L, tree_L)
    return_L = torch.where(live_L, return_L, 0).double()
    weight_L = length_L * count_L * live_L
    mean_G = group_mean(return_L, weight_L, tree_L, groups)
    return torch.where(live_L, return_L - mean_G[tree_L], 0)


def best_advantage(
    return_L: Tensor, count_L: Tensor, tree_L: Tensor, scale: Scale = Scale.GROUP, std_eps: float = 1e-6
) -> Tensor:
    """A_L = (R - second best R) / (std + eps) for the best episode of each group, 0 for the others [pass@k training].

    Two episodes that are best together have 0, and so has whatever `group_advantage` gives 0.
    """
    adv_L = torch.zeros_like(return_L, dtype=torch.float64)
    for group in tree_L[teaches(return_L, count_L, tree_L)].unique():
        mine_L = torch.nonzero((tree_L == group) & (count_L > 0) & return_L.isfinite()).flatten()
        each = torch.repeat_interleave(return_L[mine_L].double(), count_L[mine_L])
        best, second = each.topk(2).values
        std = each.std() + std_eps if scale == Scale.GROUP else 1.0
        adv_L[mine_L[return_L[mine_L].argmax()]] = (best - second) / std
    return adv_L


def overlong_penalty(length_L: Tensor, longest: int, cache: int) -> Tensor:
    """p_L: 0 up to longest - cache tokens, from there down to -1 at ``longest`` [DAPO, arXiv 2503.14476]."""
    return ((longest - cache - length_L) / cache).clamp(-1, 0)


def spread(return_L: Tensor, count_L: Tensor, tree_L: Tensor, groups: int) -> Tensor:
    """max - min of the returns in each group; 0 for a group of one, -inf for a group of none."""
    here_L = count_L > 0
    empty_G = return_L.new_full((groups,), -torch.inf)
    high_G = empty_G.scatter_reduce(0, tree_L[here_L], return_L[here_L], "amax")
    low_G = (-empty_G).scatter_reduce(0, tree_L[here_L], return_L[here_L], "amin")
    return high_G - low_G


def token_weight(mode: Aggregation, length_L: Tensor, count_L: Tensor, length_norm: float) -> Tensor:
    """w_L: what one token of an episode weighs, such that sum over episodes and tokens of w x is the aggregated loss.

    Episodes without a sampled token, and those of count 0, are no part of any mean; without any, all weights are 0.
    """
    count_L = torch.where(length_L > 0, count_L, 0).double()
    episodes = count_L.sum().clamp_min(1)
    if mode == Aggregation.TOKEN_MEAN:
        weight_L = torch.ones_like(count_L) / (count_L * length_L).sum().clamp_min(1)
    elif mode == Aggregation.TOKEN_SUM:
        weight_L = torch.ones_like(count_L)
    elif mode == Aggregation.SEQ_MEAN_TOKEN_SUM:
        weight_L = torch.ones_like(count_L) / episodes
    elif mode == Aggregation.SEQ_MEAN_TOKEN_SUM_NORM:
        weight_L = torch.ones_like(count_L) / (episodes * length_norm)
    else:
        weight_L = 1 / (episodes * length_L.clamp_min(1))
    return torch.where(count_L > 0, weight_L, 0)


def turn_lengths(batch: Batch) -> Tensor:
    """length_A: the sampled tokens of each turn."""
    return batch.per_action(torch.ones_like(batch.old_logp_T, dtype=torch.float64))


def lengths(batch: Batch) -> Tensor:
    """length_L: the sampled tokens of each episode."""
    return batch.per_episode(turn_lengths(batch))


def zero_groups(batch: Batch, adv_L: Tensor) -> float:
    """The share of groups without any advantage: they teach nothing."""
    return 1 - batch.tree_L[adv_L != 0].unique().numel() / max(batch.trees, 1)
