"""Metrics of attribution for the log, under the source's names.

Invariant: every mean is over judged episodes, one of count c being c episodes, or over their steps; a mean over nothing
is 0. ``alpha_effective`` counts an episode whose outcome is 0 with 100, where the source gets 3e11.

Legend of the shape suffixes: L leaves = episodes, K steps of the longest episode.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from agents.tree import Tensor
from algorithms.formulas.attribution import OrmDistribution, Steps, step_weights
from algorithms.formulas.maths import SAME

RATIO_MAX = 100.0
"""Largest ratio of an episode's labels to its outcome that enters ``alpha_effective``."""
GROUP_MEAN_MAX, GROUP_STD_OFF, SMALL = 0.05, 0.2, 0.05


def fusion_metrics(
    steps: Steps, z_LK: Tensor, o_L: Tensor, c_LK: Tensor, alpha: float, beta: float, where: OrmDistribution
) -> dict[str, float]:
    """How labels and outcome compare, for both schemes."""
    steps, (z_LK, o_L, c_LK) = _judged(steps, z_LK, o_L, c_LK)
    good_L = (steps.good_LK & steps.said_LK).sum(1)
    mostly_good_L, won_L = good_L > steps.lengths() - good_L, steps.success_L
    labels_L = alpha * z_LK.abs().sum(1)
    last_L = beta * o_L.abs()
    paid_L = last_L if where == OrmDistribution.LAST_STEP else last_L * steps.lengths()
    return {
        "attr_mean": _mean(z_LK[steps.said_LK]),
        "attr_std": _std(z_LK[steps.said_LK]),
        "out_mean": _mean(o_L),
        "out_std": _std(o_L),
        "outcome_share_last_mean": _mean(last_L / (last_L + labels_L + 1e-12)),
        "alpha_effective": _mean((labels_L / (paid_L + 1e-12)).clamp_max(RATIO_MAX)),
        "sum_step_reward_sign_agree": _mean((c_LK.sum(1) > 0) == won_L),
        "pos_traj_prm_good_majority_rate": _mean(mostly_good_L[won_L]),
        "neg_traj_prm_bad_majority_rate": _mean(~mostly_good_L[~won_L]),
    }


def allocation_metrics(
    steps: Steps, x_LK: Tensor, z_LK: Tensor, scales: tuple[float, float, float]
) -> dict[str, float]:
    """How the scheme ``allocation`` divides an outcome among steps; ``scales`` as in `step_weights`.

    As in the source, the gaps between GOOD and BAD part the episodes by a return above 0, all else by success.
    """
    steps, (x_LK, z_LK) = _judged(steps, x_LK, z_LK)
    said_LK, won_L = steps.said_LK, steps.success_L
    weight_LK = step_weights(steps, *scales)
    total_L = weight_LK.sum(1)
    alive_L = total_L > SAME
    unit_L = torch.where(alive_L, 1 / torch.where(alive_L, total_L, 1), 0)
    share_L = (weight_LK * (steps.good_LK == won_L[:, None])).sum(1) * unit_L
    good_LK, bad_LK = (said_LK & g for g in (steps.good_LK, ~steps.good_LK))
    gap_L = _row_mean(z_LK, good_LK) - _row_mean(z_LK, bad_LK)
    both_L = good_LK.any(1) & bad_LK.any(1)
    paid_L = steps.return_L > 0
    groups = [z_LK[steps.tree_L == g][said_LK[steps.tree_L == g]] for g in steps.tree_L.unique()]
    means, stds = [abs(_mean(z)) for z in groups], [_std(z) for z in groups]
    bad = sum(m > GROUP_MEAN_MAX or abs(s - 1) > GROUP_STD_OFF for m, s in zip(means, stds, strict=True))
    return {
        "consistent_weight_share_pos": _mean(share_L[alive_L & won_L]),
        "consistent_weight_share_neg": _mean(share_L[alive_L & ~won_L]),
        "unit_weight_mean": _mean(unit_L),
        "unit_weight_p95": _p95(unit_L.tolist()),
        "degenerate_total_w_count": float((~alive_L).sum()),
        "r_norm_group_mean_abs_p95": _p95(means),
        "r_norm_group_std_p95": _p95(stds),
        "zscore_bad_group_cnt": float(bad),
        "good_bad_rnorm_gap_pos": _mean(gap_L[both_L & paid_L]),
        "good_bad_rnorm_gap_neg": _mean(-gap_L[both_L & ~paid_L]),
        "rnorm_small_mag_ratio": _mean(z_LK[said_LK].abs() < SMALL),
        "pre_norm_sum_sign_agree": _mean(torch.where(won_L, x_LK.sum(1), -x_LK.sum(1)) > 0),
        "post_norm_sum_mean": _mean(z_LK.sum(1)),
    }


def _judged(steps: Steps, *columns: Tensor) -> tuple[Steps, list[Tensor]]:
    """Only the judged episodes, each row as often as it counts."""
    count_L = torch.where(steps.judged_L & (steps.lengths() > 0), steps.count_L, 0)
    row = torch.repeat_interleave(torch.arange(count_L.numel(), device=count_L.device), count_L)
    names = ("said_LK", "good_LK", "judged_L", "return_L", "success_L", "tree_L")
    picked = replace(steps, count_L=torch.ones_like(row), **{name: getattr(steps, name)[row] for name in names})
    return picked, [x[row] for x in columns]


def _mean(x: Tensor) -> float:
    return float(x.double().mean()) if x.numel() else 0.0


def _std(x: Tensor) -> float:
    return float(x.double().std(correction=0)) if x.numel() else 0.0


def _row_mean(x_LK: Tensor, mask_LK: Tensor) -> Tensor:
    return (x_LK * mask_LK).sum(1) / mask_LK.sum(1).clamp_min(1)


def _p95(values: list[float]) -> float:
    """The value at rank 0.95 (n - 1), rounded."""
    return sorted(values)[round(0.95 * (len(values) - 1))] if values else 0.0
