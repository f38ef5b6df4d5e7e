"""AUC, rank correlation and explained variance: by hand, against slow loops, at the edges, and with weights."""

import math
from itertools import product

import numpy as np
import pytest

from runners.statistics.accuracy import auc, auc_within, explained_variance, share_of, spearman


def slow_auc(score: list[float], positive: list[bool]) -> float | None:
    won = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for (a, up), (b, other) in product(zip(score, positive, strict=True), repeat=2)
        if up and not other
    ]
    return sum(won) / len(won) if won else None


def slow_ranks(x: list[float]) -> list[float]:
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def slow_spearman(x: list[float], y: list[float]) -> float | None:
    a, b = slow_ranks(x), slow_ranks(y)
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    va, vb = sum((p - ma) ** 2 for p in a), sum((q - mb) ** 2 for q in b)
    if not va or not vb:
        return None
    return sum((p - ma) * (q - mb) for p, q in zip(a, b, strict=True)) / math.sqrt(va * vb)


def bools(*values: int) -> np.ndarray:
    return np.asarray(values, dtype=bool)


def floats(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def test_auc_by_hand() -> None:
    assert auc(floats(1, 2, 3, 4), bools(0, 0, 1, 1)) == 1.0
    assert auc(floats(4, 3, 2, 1), bools(0, 0, 1, 1)) == 0.0
    assert auc(floats(1, 1, 1), bools(0, 1, 1)) == 0.5  # nothing but ties
    assert auc(floats(1, 2, 2, 3), bools(0, 1, 0, 1)) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert auc(floats(-1e-300, 0, 1e-300), bools(0, 0, 1)) == 1.0


@pytest.mark.parametrize("classes", [(), (1, 1), (0, 0)])
def test_without_one_of_the_classes_there_is_no_auc(classes: tuple[int, ...]) -> None:
    assert auc(np.arange(len(classes), dtype=float), bools(*classes)) is None
    assert auc_within(np.arange(len(classes), dtype=float), bools(*classes), np.zeros(len(classes), dtype=int)) is None


@pytest.mark.parametrize("seed", range(8))
def test_fast_and_slow_agree_on_data_full_of_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    score, other, positive = (
        rng.integers(0, 6, n).astype(float),
        rng.integers(0, 4, n).astype(float),
        rng.random(n) < 0.4,
    )
    told = slow_auc(score.tolist(), positive.tolist())
    assert auc(score, positive) == (None if told is None else pytest.approx(told))
    told = slow_spearman(score.tolist(), other.tolist())
    assert spearman(score, other) == (None if told is None else pytest.approx(told))


@pytest.mark.parametrize("seed", range(4))
def test_a_weight_is_a_number_of_copies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, target = rng.integers(0, 5, 12).astype(float), rng.normal(size=12)
    positive, weight = rng.random(12) < 0.5, rng.integers(0, 4, 12)
    copies = np.repeat(np.arange(12), weight)
    w = weight.astype(float)
    assert auc(score, positive, w) == pytest.approx(auc(score[copies], positive[copies]))
    assert spearman(score, target, w) == pytest.approx(spearman(score[copies], target[copies]))
    assert explained_variance(score, target, w) == pytest.approx(explained_variance(score[copies], target[copies]))
    assert share_of(target, positive, w) == pytest.approx(share_of(target[copies], positive[copies]))
    assert auc(score, positive, w) != pytest.approx(auc(score, positive))


def test_within_episodes_the_level_of_an_episode_does_not_help() -> None:
    # Easy episode: all credit is high; within each episode the wrong action gets more.
    score, right = floats(9, 8, 2, 1), bools(0, 1, 0, 1)
    episode = np.asarray([0, 0, 1, 1])
    assert auc_within(score, right, episode) == 0.0 < (auc(score, right) or 0)
    # One number for a whole episode, as group algorithms give it, tells nothing within it.
    assert auc_within(floats(9, 9, 2, 2), right, episode) == 0.5
    # An episode counts by its pairs, and as often as it was drawn: 2 of 2 right, and 0 of 1.
    score, right, episode = floats(3, 2, 1, 1, 2), bools(1, 1, 0, 1, 0), np.asarray([0, 0, 0, 1, 1])
    assert auc_within(score, right, episode) == pytest.approx(2 / 3)
    assert auc_within(score, right, episode, floats(1, 1, 1, 4, 4)) == pytest.approx(2 / 6)


def test_rank_correlation_by_hand() -> None:
    assert spearman(floats(1, 2, 3), floats(10, 20, 400)) == pytest.approx(1)
    assert spearman(floats(1, 2, 3), floats(3, 2, 1)) == pytest.approx(-1)
    assert spearman(floats(1, 2, 3, 4), floats(1, 3, 2, 4)) == pytest.approx(0.8)  # 1 - 6 * 2 / (4 * 15)
    assert spearman(floats(1, 1, 1), floats(1, 2, 3)) is None
    assert spearman(floats(), floats()) is None


def test_explained_variance_by_hand() -> None:
    assert explained_variance(floats(0, 1, 1), floats(0, 1, 1)) == 1.0
    assert explained_variance(floats(7, 7), floats(0, 1)) == 0.0  # any constant explains nothing
    assert explained_variance(floats(1, 0), floats(0, 1)) == pytest.approx(-3)
    assert explained_variance(floats(0, 1), floats(1, 1)) is None
    assert explained_variance(floats(), floats()) is None


def test_the_share_of_the_sum_of_sizes() -> None:
    assert share_of(floats(-3, 1, 0), bools(1, 0, 1)) == 0.75
    assert share_of(floats(0, 0), bools(1, 0)) is None
