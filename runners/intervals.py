"""Estimates with their uncertainty: bootstrap intervals over tasks and unbiased pass@k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(values: Sequence[float], *, seed: int = 0, draws: int = 2000) -> Interval:
    """The mean of one number per task and its 95 % percentile interval over resampled tasks.

    Raises ValueError for no values.
    """
    if not len(values):
        raise ValueError("an interval needs at least one value")
    x_N = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    picks_DN = rng.integers(0, x_N.size, size=(draws, x_N.size))
    low, high = np.percentile(x_N[picks_DN].mean(axis=1), [2.5, 97.5])
    return Interval(float(x_N.mean()), float(low), float(high))


def bootstrap_gain(before: Sequence[float], after: Sequence[float], *, seed: int = 0) -> Interval:
    """The mean difference of paired tasks and its 95 % interval. Raises ValueError when the lengths differ."""
    if len(before) != len(after):
        raise ValueError(f"paired tasks: {len(before)} before, {len(after)} after")
    return bootstrap([b - a for a, b in zip(before, after, strict=True)], seed=seed)


def pass_at_k(n: int, right: int, k: int) -> float:
    """Chance that at least one of k of the n samples is right: 1 − C(n−c, k) / C(n, k), the unbiased estimator.

    Source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code". Raises ValueError unless 1 ≤ k ≤ n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs 1 to {n} samples")
    return 1.0 - comb(n - right, k) / comb(n, k)


def mean(values: Sequence[float]) -> float:
    """The mean; not a number when there are no values."""
    return sum(values) / len(values) if values else float("nan")
