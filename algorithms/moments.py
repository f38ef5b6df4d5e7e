"""Means and deviations of weighted numbers, and how those of parts add up to the whole's.

Invariant: an entry of weight c is c of them; statistics are taken in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agents.tree import Tensor


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """sum(w x) / sum(w) over all entries; 0 where there is no weight."""
    return (x * weight).sum() / torch.where(weight.sum() > 0, weight.sum(), 1)


def mean_and_variance(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance in float64, an entry of weight c being c samples; variance 0 for a single sample.

    Entries without weight are left out beforehand, so that they cannot change a single bit.
    """
    x, weight = x[weight > 0].double(), weight[weight > 0].double()
    mean = weighted_mean(x, weight)
    return mean, (weight * (x - mean).square()).sum() / (weight.sum() - 1).clamp_min(1)


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squares about it, least and largest of some numbers. Those of the parts add up."""

    count: Tensor
    mean: Tensor
    squares: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, x: Tensor, weight: Tensor) -> Moments:
        """Of the entries with weight, in float64, an entry of weight c being c of them."""
        mean, variance = mean_and_variance(x, weight)
        seen, count = x[weight > 0].double(), weight[weight > 0].double().sum()
        ends = (seen.min(), seen.max()) if seen.numel() else (mean.new_tensor(torch.inf), mean.new_tensor(-torch.inf))
        return cls(count, mean, variance * (count - 1).clamp_min(1), *ends)

    def __add__(self, other: Moments) -> Moments:
        """Of both together [Chan, Golub and LeVeque 1983]."""
        count, away = self.count + other.count, other.mean - self.mean
        share = other.count / count.clamp_min(1)
        return Moments(
            count,
            self.mean + away * share,
            self.squares + other.squares + away.square() * self.count * share,
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
        )

    @property
    def variance(self) -> Tensor:
        """Unbiased; 0 for a single number."""
        return self.squares / (self.count - 1).clamp_min(1)
