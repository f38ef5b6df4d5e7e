"""Estimates with their uncertainty: bootstrap intervals over tasks, over seeds and tasks, and unbiased pass@k."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, comb, gamma, pi, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Grid = npt.NDArray[np.float64]
"""(seeds, tasks), or (seeds, 1) for what a whole run has one number of."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def task_draws(tasks: int, draws: int, rng: np.random.Generator) -> list[npt.NDArray[np.float64]]:
    """How often each of ``tasks`` tasks comes in each of ``draws`` resamples with replacement."""
    return [np.bincount(rng.integers(0, tasks, tasks), minlength=tasks).astype(np.float64) for _ in range(draws)]


def percentile(mean: float, found: Sequence[float]) -> Interval:
    """``mean`` with the ends of the middle 95 % of what resamples ``found``."""
    low, high = np.percentile(found, [2.5, 97.5])
    return Interval(mean, float(low), float(high))


def over_tasks(
    figure: Callable[[npt.NDArray[np.float64]], float | None],
    task_X: npt.NDArray[np.int_],
    drawn: Sequence[npt.NDArray[np.float64]],
) -> Interval | None:
    """A figure with its 95 % percentile interval over resampled tasks; None where it cannot be told.

    ``figure`` gets a weight for each of X entries, ``task_X`` tells their tasks, and ``drawn`` is of `task_draws`.
    """
    if (whole := figure(np.ones(len(task_X)))) is None:
        return None
    found = [x for weight in drawn if (x := figure(weight[task_X])) is not None]
    return percentile(whole, found) if found else None


def bootstrap(values: Sequence[float], *, seed: int = 0, draws: int = 2000) -> Interval:
    """The mean of one number per task and its 95 % percentile interval over resampled tasks.

    NaN, as of a task that was never played to its end, is left out. Raises ValueError where nothing else is there.
    """
    x_N = np.asarray(values, dtype=np.float64)
    x_N = x_N[~np.isnan(x_N)]
    if not x_N.size:
        raise ValueError("an interval needs at least one value")
    rng = np.random.default_rng(seed)
    picks_DN = rng.integers(0, x_N.size, size=(draws, x_N.size))
    return percentile(float(x_N.mean()), x_N[picks_DN].mean(axis=1))


def bootstrap_gain(before: Sequence[float], after: Sequence[float], *, seed: int = 0) -> Interval:
    """The mean difference of paired tasks, as `bootstrap`. Raises ValueError when the lengths differ, too."""
    if len(before) != len(after):
        raise ValueError(f"paired tasks: {len(before)} before, {len(after)} after")
    return bootstrap([b - a for a, b in zip(before, after, strict=True)], seed=seed)


def over_seeds(
    grids: Sequence[Grid],
    combine: Callable[..., npt.NDArray[np.float64]] = lambda mean: mean,
    *,
    seed: int = 0,
    draws: int = 4000,
) -> Interval | None:
    """``combine`` of the grids' means, with its 95 % interval over resampled seeds and tasks.

    The grids, all of one shape, are paired: each draw takes the same seeds and the same tasks of all of them. The
    percentiles are those of the expanded bootstrap, which makes up for few seeds: the tail is that of Student's t with
    n - 1 degrees of freedom, times sqrt(n / (n - 1)) [Hesterberg 2015, "What teachers should know about the
    bootstrap"]. NaN entries are left out of the means. None stands for an interval without bounds, as of a ratio whose
    lower part is 0 in some draw. Raises ValueError for less than two seeds.
    """
    seeds, tasks = grids[0].shape
    if seeds < 2 or any(grid.shape != (seeds, tasks) for grid in grids):
        raise ValueError("intervals over seeds need grids of one shape with at least two seeds")
    rng = np.random.default_rng(seed)
    of_seed_DS = rng.multinomial(seeds, [1 / seeds] * seeds, size=draws).astype(np.float64)
    of_task_DN = rng.multinomial(tasks, [1 / tasks] * tasks, size=draws).astype(np.float64)
    means_D, means = [], []
    for grid in grids:
        known, x = np.isfinite(grid), np.nan_to_num(grid)
        weight_D = ((of_seed_DS @ known) * of_task_DN).sum(1)
        means_D.append(((of_seed_DS @ x) * of_task_DN).sum(1) / np.where(weight_D > 0, weight_D, np.nan))
        means.append(np.asarray(x.sum() / known.sum() if known.any() else np.nan))
    tail = NormalDist().cdf(-sqrt(seeds / (seeds - 1)) * student_t(seeds - 1))
    found_D = combine(*means_D)[np.isfinite(means_D).all(axis=0)]
    if not (found_D.size and np.isfinite(found_D).all()):
        return None
    low, high = np.quantile(found_D, [tail, 1 - tail])
    return Interval(float(combine(*means)), float(low), float(high))


@lru_cache(maxsize=64)
def student_t(freedom: int) -> float:
    """The 97.5 % point of Student's t, by bisection on the integral of its density."""
    if freedom >= _NORMAL:
        return NormalDist().inv_cdf(0.975)
    low, high = 1.0, 20.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > 0.025 else (low, middle)
    return low


_NORMAL = 300
"""Degrees of freedom from which on the normal distribution takes the place of Student's t."""


def student_tail(t: float, freedom: int) -> float:
    """The chance that Student's t is above ``t``."""
    if freedom >= _NORMAL:
        return 1 - NormalDist().cdf(t)
    # By u = x / sqrt(freedom + x^2) the tail becomes an integral of (1 - u^2)^(freedom / 2 - 1) up to u = 1; with
    # u = sin(angle) it has no edge for any number of degrees of freedom.
    scale = gamma((freedom + 1) / 2) / (sqrt(pi) * gamma(freedom / 2))
    angle = np.linspace(atan(t / sqrt(freedom)), pi / 2, 4001)
    height = np.cos(angle) ** (freedom - 1)
    return float(scale * ((height[1:] + height[:-1]) / 2 @ np.diff(angle)))


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
