"""The formulas with literal numbers."""

import math

import pytest
import torch

from algorithms.formulas.groups import (
    Aggregation,
    best_advantage,
    group_advantage,
    length_weighted_advantage,
    token_weight,
    whitened,
)
from algorithms.formulas.maths import (
    KL,
    AdvantageScale,
    Moments,
    bounded,
    cispo,
    clipped,
    explained_variance,
    kl_divergence,
    mean_and_variance,
    reward_less_kl,
    scale_advantage,
    soft_surrogate,
    squared_error,
    surrogate,
    weighted_mean,
)

INF = math.inf


def t(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_log_ratios_are_bounded_and_have_no_gradient_beyond() -> None:
    x = t(-30, -20, 0.5, 20, 30).requires_grad_()
    bounded(x).sum().backward()
    assert bounded(x).tolist() == [-20, -20, 0.5, 20, 20]
    assert x.grad is not None and x.grad.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("ratio", "adv", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.0),
        (1.5, 2.0, -2.4, 0.0),  # min(r, 1.2) A
        (0.5, 2.0, -1.0, -2.0),
        (0.5, -1.0, 0.8, 0.0),  # max(r, 0.8) |A|
        (1.5, -1.0, 1.5, 1.0),
        (5.0, -1.0, 3.0, 0.0),  # dual clip: min(3, r) |A|
        (0.5, 0.0, 0.0, 0.0),
    ],
)
def test_surrogate(ratio: float, adv: float, loss: float, slope: float) -> None:
    r = t(ratio).requires_grad_()
    sides = (t(max(adv, 0)), t(min(adv, 0)), 0.2, 0.2, 3.0)
    ours = surrogate(r.log(), *sides)
    ours.backward()
    assert ours.item() == pytest.approx(loss) and r.grad.item() == pytest.approx(slope)
    assert bool(clipped(r.log(), *sides)) is (slope == 0.0 and adv != 0)


def test_surrogate_of_those_who_disagree_is_the_sum_of_theirs() -> None:
    for ratio in (0.5, 0.9, 1.1, 1.5, 4.0):
        log = t(math.log(ratio))
        both = surrogate(log, t(0.7), t(-0.3), 0.2, 0.28, 3.0)
        apart = surrogate(log, t(0.7), t(0), 0.2, 0.28, 3.0) + surrogate(log, t(0), t(-0.3), 0.2, 0.28, 3.0)
        assert both.item() == pytest.approx(apart.item())


def test_soft_surrogate_is_flat_far_away_and_has_slope_one_at_one() -> None:
    x = t(0.0).requires_grad_()
    soft_surrogate(x, t(1.0), t(0.0), 1.0, 1.05).sum().backward()
    assert x.grad.item() == pytest.approx(-1.0)  # 4 / tau * tau / 4
    assert float(soft_surrogate(t(0.0), t(1.0), t(-1.0), 1.0, 2.0)) == pytest.approx(-2.0 + 1.0)
    assert float(soft_surrogate(t(20.0), t(1.0), t(0.0), 1.0, 1.05)) == pytest.approx(-4.0)


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        ("k1", 0.5, 1.0),
        ("k2", 0.125, 0.5),
        ("k3", math.exp(-0.5) - 0.5, 1 - math.exp(-0.5)),
        ("abs", 0.5, 1.0),
        ("k1+", 0.5, 0.5),
        ("k3+", math.exp(-0.5) - 0.5, 0.5),
        ("abs+", 0.5, 0.5),
    ],
)
def test_kl(estimator: str, value: float, slope: float) -> None:
    logp = t(-1.0).requires_grad_()
    kl = kl_divergence(logp, t(-1.5), KL(estimator))
    kl.sum().backward()
    assert kl.item() == pytest.approx(value) and logp.grad.item() == pytest.approx(slope)


def test_k3_is_bounded() -> None:
    logp = t(-30.0, -1.0).requires_grad_()
    kl = kl_divergence(logp, t(0.0, -1.0), KL.K3)
    kl.sum().backward()
    assert kl.tolist() == [10, 0] and logp.grad.tolist() == [0, 0]


def test_squared_error_with_and_without_clip() -> None:
    value, target = t(0.5, -0.5), t(1.0, 1.0)
    assert squared_error(value, target, t(0.0, 0.0), INF).tolist() == [0.25, 2.25]
    assert squared_error(value, target, t(0.0, 0.0), 0.2).tolist() == pytest.approx([0.64, 2.25])


def test_means_and_variances_count_a_weight_as_that_many() -> None:
    mean, variance = mean_and_variance(t(1.0, 4.0, 99.0), t(2, 1, 0))
    assert float(mean) == 2.0 and float(variance) == 3.0  # of 1, 1, 4
    assert float(weighted_mean(t(1.0, 4.0), t(0, 0))) == 0.0
    assert [float(x) for x in mean_and_variance(t(7.0), t(1))] == [7.0, 0.0]


def test_scale_advantage() -> None:
    adv, count = t(1.0, 3.0, 1000.0), t(1, 1, 0)
    assert scale_advantage(adv, count, AdvantageScale.NONE) is adv
    std = scale_advantage(adv, count, AdvantageScale.STD)
    assert std[:2].tolist() == pytest.approx([1 / math.sqrt(2), 3 / math.sqrt(2)])
    white = scale_advantage(adv, count, AdvantageScale.WHITEN)
    assert white[:2].tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2)])
    assert torch.equal(scale_advantage(adv, count, AdvantageScale.LIFT), std), "its mean is not below 0"
    lifted = scale_advantage(-adv, count, AdvantageScale.LIFT)
    assert lifted[:2].tolist() == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2)])
    part, over = -adv[:1], Moments.of(-adv, count)
    assert torch.equal(scale_advantage(part, count[:1], AdvantageScale.LIFT, over=over), lifted[:1])
    floored = scale_advantage(adv, count, AdvantageScale.STD, floor=10.0)
    assert floored[:2].tolist() == pytest.approx([0.1, 0.3])
    assert torch.equal(scale_advantage(adv, count, AdvantageScale.STD, floor=1.0), std), (
        "above the floor nothing changes"
    )
    for alone in (t(2.0), t(2.0, 2.0 + 1e-9)):
        assert scale_advantage(alone, torch.ones_like(alone), AdvantageScale.STD) is alone


def test_explained_variance() -> None:
    target = t(0.0, 1.0, 2.0)
    assert float(explained_variance(target, target, torch.ones(3))) == 1.0
    assert float(explained_variance(torch.zeros(3), target, torch.ones(3))) == 0.0
    assert float(explained_variance(-target, target, torch.ones(3))) == -3.0
    assert float(explained_variance(target, torch.ones(3), torch.ones(3))) == 0.0


def test_group_advantage() -> None:
    returns, one, tree = t(0.0, 1.0, 1.0, 5.0, 9.0), torch.ones(5, dtype=torch.long), torch.tensor([0, 0, 0, 1, 1])
    grpo = group_advantage(returns, one, tree, std_eps=0.0)
    assert grpo.tolist() == pytest.approx(
        [-2 / math.sqrt(3), 1 / math.sqrt(3), 1 / math.sqrt(3), -(0.5**0.5), 0.5**0.5]
    )
    rloo = group_advantage(returns, one, tree, "leave_one_out", "none")
    assert rloo.tolist() == pytest.approx([-1.0, 0.5, 0.5, -4.0, 4.0])
    dr_grpo = group_advantage(returns, one, tree, "mean", "none")
    assert dr_grpo.tolist() == pytest.approx([-2 / 3, 1 / 3, 1 / 3, -2.0, 2.0])
    counts = group_advantage(t(0.0, 1.0), torch.tensor([1, 2]), torch.tensor([0, 0]), std_eps=0.0)
    assert counts.tolist() == pytest.approx(grpo[:2].tolist())


def test_rounding_is_not_an_advantage() -> None:
    """0.1 + 0.2 is not 0.3 in floating point, and dividing by the deviation would make +-0.7 of it."""
    one, tree = torch.ones(2, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    for returns in (t(0.1 + 0.2, 0.3), t(0.5, 0.5 + 9e-9), t(math.nan, 0.5), t(math.inf, -math.inf)):
        for baseline in ("mean", "leave_one_out"):
            for scale in ("group", "batch", "none"):
                assert group_advantage(returns, one, tree, baseline, scale, 1e-20).tolist() == [0.0, 0.0]
    assert group_advantage(t(0.5, 0.5 + 2e-8), one, tree, std_eps=0.0).tolist() != [0.0, 0.0]


def test_token_weights_add_up() -> None:
    length, count = t(2.0, 4.0, 3.0, 0.0), torch.tensor([1, 2, 0, 5])  # 3 episodes of 10 tokens
    weights = {mode: token_weight(mode, length, count, 7.0) for mode in Aggregation}
    assert weights["token-mean"][:2].tolist() == pytest.approx([0.1, 0.1])
    assert weights["token-sum"][:2].tolist() == [1, 1]
    assert weights["seq-mean-token-sum"][:2].tolist() == pytest.approx([1 / 3, 1 / 3])
    assert weights["seq-mean-token-sum-norm"][:2].tolist() == pytest.approx([1 / 21, 1 / 21])
    assert weights["seq-mean-token-mean"][:2].tolist() == pytest.approx([1 / 6, 1 / 12])
    for weight in weights.values():
        assert not weight[2:].any()
        assert weight.isfinite().all()


def test_cispo_is_reinforce_times_a_bounded_constant() -> None:
    for ratio, weight in ((0.1, 0.8), (1.1, 1.1), (9.0, 1.2)):
        logp = t(-2.0).requires_grad_()
        loss = cispo(logp - (-2.0 - math.log(ratio)), logp, t(3.0), t(-1.0), 0.2, 0.2)
        loss.sum().backward()
        assert loss.item() == pytest.approx(-2 * weight * -2.0) and logp.grad.item() == pytest.approx(-2 * weight)


def test_kl_as_a_cost() -> None:
    assert reward_less_kl(t(1.0, 0.0), t(-1.0, -2.0), t(-1.5, -1.0), 0.1).tolist() == pytest.approx([0.95, 0.1])


def test_whitened() -> None:
    adv = whitened(t(1.0, 4.0, 99.0), t(2, 1, 0))  # 1, 1, 4 have mean 2 and variance 3
    assert adv.tolist() == pytest.approx([-1 / math.sqrt(3), 2 / math.sqrt(3), 0.0])
    assert not whitened(t(0.7, 0.7 + 1e-9, 5.0), t(1, 3, 0)).any() and not whitened(t(3.0), t(0)).any()


def test_the_length_weighted_baseline() -> None:
    """Returns 0 and 3 of 2 and 4 tokens: the mean over tokens is 2. Alone, equal or unscored: 0."""
    tree = torch.tensor([0, 0, 1, 2, 2, 3, 3])
    returns = t(0.0, 3.0, 5.0, 0.7, 0.7, math.nan, 1.0)
    adv = length_weighted_advantage(returns, t(2, 4, 1, 1, 2, 1, 1), torch.ones(7, dtype=torch.long), tree)
    assert adv.tolist() == pytest.approx([-2.0, 1.0, 0, 0, 0, 0, 0])
    counted = length_weighted_advantage(t(0.0, 3.0), t(2, 4), torch.tensor([4, 1]), torch.tensor([0, 0]))
    assert counted.tolist() == pytest.approx([-1.0, 2.0])


def test_only_the_best_has_an_advantage() -> None:
    tree, one = torch.tensor([0, 0, 0, 1, 1, 2]), torch.ones(6, dtype=torch.long)
    returns = t(1.0, 4.0, 2.0, 3.0, 3.0, 9.0)
    assert best_advantage(returns, one, tree, "none").tolist() == [0, 2.0, 0, 0, 0, 0]
    scaled = best_advantage(returns, one, tree, std_eps=0.0)
    assert scaled[1].item() == pytest.approx(2.0 / t(1.0, 4.0, 2.0).std().item()) and (scaled != 0).sum() == 1
    twice = best_advantage(t(1.0, 4.0), torch.tensor([1, 2]), torch.tensor([0, 0]), "none")
    assert not twice.any()  # the best was sampled twice: the second best is as good
