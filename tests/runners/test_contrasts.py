"""Tests over seeds, several at once, and Fieller's interval: against published figures and simulated truth."""

import numpy as np
import pytest

from runners.statistics.contrasts import chance, fieller, holm
from runners.statistics.intervals import student_t, student_tail


@pytest.mark.parametrize(
    ("t", "freedom", "above"), [(2.776445, 4, 0.025), (2.0, 1, 0.147584), (10.0, 4, 0.000281), (1.959964, 10**4, 0.025)]
)
def test_the_tail_of_student_is_that_of_the_tables(t: float, freedom: int, above: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(above, abs=2e-6)
    assert student_tail(-t, freedom) == pytest.approx(1 - above, abs=2e-6)
    assert student_t(9) == pytest.approx(2.262157, abs=1e-6)


def test_the_chance_of_a_mean() -> None:
    # Of R: t.test(c(0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0), alternative = "greater")
    sleep = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    assert chance(sleep) == pytest.approx(0.1088, abs=1e-4)
    assert chance(-sleep) == pytest.approx(1 - 0.1088, abs=1e-4)
    assert [chance(np.full(5, x)) for x in (0.1, -0.1, 0.0)] == [0.0, 1.0, 0.5]
    with pytest.raises(ValueError, match="at least two"):
        chance(sleep[:1])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([0.02]) == [0.02] and holm([]) == []


def test_holm_keeps_the_chance_of_any_error() -> None:
    """Of eight claims that are all false, one or more holds in 5 % of studies; uncorrected ones in a third."""
    rng = np.random.default_rng(0)
    wrong = [0, 0]
    for _ in range(2000):
        chances = [chance(x) for x in rng.normal(size=(8, 6))]
        wrong[0] += min(holm(chances)) <= 0.05
        wrong[1] += min(chances) <= 0.05
    assert 0.035 <= wrong[0] / 2000 <= 0.065 and wrong[1] / 2000 > 0.25


def test_fieller_holds_the_truth() -> None:
    """Also where what is divided by is noisy: there the ratio's mean alone would not do."""
    rng = np.random.default_rng(1)
    held = unbounded = 0
    for _ in range(2000):
        below = rng.normal(1.0, 0.7, 8)
        above = 0.6 * below + rng.normal(0, 0.3, 8)
        found = fieller(above, below)
        unbounded += found is None
        held += found is None or found.low <= 0.6 <= found.high
    assert 0.935 <= held / 2000 <= 0.965 and 0 < unbounded < 400


def test_fieller_of_an_exact_ratio() -> None:
    below = np.array([10.0, 11.0, 12.0])
    found = fieller(2 * below, below)
    assert found is not None and (found.mean, found.low, found.high) == pytest.approx((2, 2, 2), abs=1e-6)
    with pytest.raises(ValueError, match="two pairs"):
        fieller(below, below[:2])
