"""Tests of a contrast over seeds, several at once, and intervals of ratios.

Legend: S seeds.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
import numpy.typing as npt

from runners.statistics.intervals import Interval, student_t, student_tail

Seeds = npt.NDArray[np.float64]


def chance(contrast_S: Seeds) -> float:
    """One-sided p of Student's t: how likely a mean as large as this is where the true one is 0.

    Raises ValueError for less than two seeds.
    """
    seeds = contrast_S.size
    if seeds < 2:
        raise ValueError("a test over seeds needs at least two")
    mean, error = float(contrast_S.mean()), float(contrast_S.std(ddof=1)) / sqrt(seeds)
    if not error:
        return 0.0 if mean > 0 else 1.0 if mean < 0 else 0.5
    return student_tail(mean / error, seeds - 1)


def holm(chances: Sequence[float]) -> list[float]:
    """The same chances, each as large as it counts beside the others: a claim that holds at a level with its own holds
    with the chance that none of them is wrong. Source: Holm 1979, "A simple sequentially rejective multiple test
    procedure"."""
    adjusted, most = [0.0] * len(chances), 0.0
    for rank, i in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        most = max(most, min(1.0, (len(chances) - rank) * chances[i]))
        adjusted[i] = most
    return adjusted


def fieller(above_S: Seeds, below_S: Seeds) -> Interval | None:
    """mean(above) / mean(below) of pairs, with Fieller's 95 % interval: the ratios r that a t-test of above - r * below
    does not exclude. None where those have no bounds, because below could be 0.

    Source: Fieller 1954, "Some problems in interval estimation". Raises ValueError for less than two seeds.
    """
    seeds = above_S.size
    if seeds < 2 or below_S.size != seeds:
        raise ValueError("a ratio over seeds needs at least two pairs")
    x, y = float(above_S.mean()), float(below_S.mean())
    (xx, xy), (_, yy) = np.cov(above_S, below_S) * student_t(seeds - 1) ** 2 / seeds
    a, b, c = y * y - yy, x * y - xy, x * x - xx
    if a <= 0:
        return None
    half = sqrt(max(0.0, b * b - a * c))
    return Interval(x / y, (b - half) / a, (b + half) / a)
