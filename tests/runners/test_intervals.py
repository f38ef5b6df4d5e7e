"""Bootstrap intervals and pass@k against what is known otherwise."""

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

from runners.statistics.intervals import Interval, bootstrap, bootstrap_gain, over_seeds, pass_at_k, student_t


def test_the_interval_of_a_share_is_the_normal_one() -> None:
    n, p = 500, 0.3
    found = bootstrap([1.0] * 150 + [0.0] * 350)
    half = 1.96 * sqrt(p * (1 - p) / n)
    assert found.mean == pytest.approx(p)
    assert found.low == pytest.approx(p - half, abs=0.004) and found.high == pytest.approx(p + half, abs=0.004)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(300):
        found = bootstrap(rng.random(60) < 0.4, seed=seed, draws=300)  # type: ignore[arg-type]
        covered += found.low <= 0.4 <= found.high
    assert 0.90 <= covered / 300 <= 0.98


def test_equal_values_have_no_spread_and_the_seed_decides() -> None:
    assert bootstrap([0.25] * 9) == Interval(0.25, 0.25, 0.25)
    values = [float(x) for x in np.random.default_rng(0).random(50)]
    assert bootstrap(values) == bootstrap(values) != bootstrap(values, seed=1)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([])
    assert bootstrap([1.0, float("nan"), 0.0]) == bootstrap([1.0, 0.0])
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([float("nan")])


def test_a_gain_is_measured_on_paired_tasks() -> None:
    before = [0.0, 1.0] * 100
    after = [0.5, 1.0] * 100
    paired = bootstrap_gain(before, after)
    assert paired.mean == pytest.approx(0.25)
    alone = bootstrap(after).high - bootstrap(before).low
    assert paired.high - paired.low < 0.1 < alone  # pairing takes the tasks' own spread away
    assert bootstrap_gain(before, before) == Interval(0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="paired"):
        bootstrap_gain([1.0], [1.0, 0.0])


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n: int) -> None:
    for right in range(n + 1):
        samples = [True] * right + [False] * (n - right)
        for k in range(1, n + 1):
            subsets = list(combinations(samples, k))
            assert pass_at_k(n, right, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_k_needs_enough_samples(k: int) -> None:
    with pytest.raises(ValueError, match="samples"):
        pass_at_k(3, 1, k)


def test_it_is_written_short() -> None:
    assert str(Interval(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"


def grid(values: object) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def test_the_points_of_students_t() -> None:
    assert [round(student_t(n), 3) for n in (1, 2, 4, 9, 30)] == [12.706, 4.303, 2.776, 2.262, 2.042]
    assert student_t(400) == pytest.approx(1.96, abs=1e-3)


def test_five_seeds_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    wide = narrow = 0
    for seed in range(300):
        x = rng.normal(size=(5, 1))
        found, plain = over_seeds([x], seed=seed, draws=1000), bootstrap(x[:, 0].tolist(), seed=seed, draws=1000)
        wide += found.low <= 0 <= found.high
        narrow += plain.low <= 0 <= plain.high
    assert 0.90 <= wide / 300 <= 0.98
    assert narrow / 300 < 0.88, "without the correction for few seeds it would be too narrow"


def test_seeds_and_tasks_both_spread() -> None:
    rng = np.random.default_rng(1)
    same_seeds = np.tile(rng.random(40) < 0.5, (5, 1)).astype(float)  # all spread is between tasks
    same_tasks = np.repeat(rng.random((5, 1)), 40, axis=1)  # all spread is between seeds
    for x in (same_seeds, same_tasks):
        found = over_seeds([x])
        assert found.low < found.mean < found.high and found.mean == pytest.approx(x.mean())
    assert over_seeds([np.full((3, 4), 0.5)]) == Interval(0.5, 0.5, 0.5)


def test_pairs_are_drawn_together() -> None:
    rng = np.random.default_rng(2)
    hard = rng.random((5, 30))
    better = hard + 0.1
    gain = over_seeds([better, hard], lambda a, b: a - b)
    assert (gain.low, gain.mean, gain.high) == pytest.approx((0.1, 0.1, 0.1))
    unpaired = over_seeds([better, hard[::-1, ::-1]], lambda a, b: a - b)
    assert unpaired.high - unpaired.low > 0.1


def test_a_ratio_is_that_of_the_means() -> None:
    found = over_seeds([grid([[1], [3]]), grid([[2], [2]])], lambda a, b: a / b)
    assert found.mean == 1.0 and found.low == pytest.approx(0.5) and found.high == pytest.approx(1.5)


def test_what_is_no_number_is_left_out() -> None:
    x = grid([[1, np.nan], [1, 0], [1, 0]])
    assert over_seeds([x]).mean == pytest.approx(3 / 5)
    for wrong in ([grid([[1]])], [grid([[1], [2]]), grid([[1], [2], [3]])]):
        with pytest.raises(ValueError, match="at least two seeds"):
            over_seeds(wrong, lambda *means: means[0])
