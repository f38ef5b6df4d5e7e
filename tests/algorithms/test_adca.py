"""ADCA-GRPO against a loop over its episodes, written down from its source, and its promises on shared trees."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from adca_cases import advantages, credit_of, each, equal, gradient, groups
from algorithm_trees import World, paths, unshared, world
from torch import Tensor

from agents.tree import Node
from algorithms.adca import ADCA
from algorithms.grpo import GRPO


def by_loop(w: World, algorithm: ADCA, trees: list[Node]) -> tuple[float, Tensor]:
    """GRPO's clipped loss with those advantages, one row per episode, without any sharing."""
    logp, _ = w.numbers()
    old, ref = (torch.tensor(x, dtype=torch.float64) for x in (w.old, w.ref))
    rows: list[list[tuple[int, float]]] = []
    for root in trees:
        episodes = [path for path in paths(root) for _ in range(path[-1][0].count)]
        for path, adv in zip(episodes, advantages(algorithm, episodes), strict=True):
            rows.append([(t, a) for (action, _), a in zip(path, adv, strict=True) for t in action.tokens])
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        weight = 1 / sum(map(len, rows))
        if algorithm.aggregation == "seq-mean-token-mean":
            weight = 1 / len(rows) / len(row)
        for t, a in row:
            ratio = torch.exp(logp[t] - old[t])
            gain = torch.minimum(ratio * a, ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high) * a)
            if a < 0:
                gain = torch.maximum(gain, torch.tensor(algorithm.dual_clip * a, dtype=torch.float64))
            x = logp[t] - ref[t]
            total = total + weight * (algorithm.kl_coef * (torch.exp(-x) + x - 1) - gain)
    total.backward()
    return float(total.detach()), logp.grad


@each
@pytest.mark.parametrize("blank", [0.0, 0.2])
def test_the_loss_is_the_printed_one(options: dict[str, Any], blank: float) -> None:
    """Also where the judge left labels out: those episodes are in no statistic of the labels."""
    for seed in range(3):
        w = world(seed, gap=0.5)
        trees = groups(w, blank=blank)
        ours = gradient(w, ADCA(**options), trees)
        equal(ours, by_loop(w, ADCA(**options), trees))
        assert ours[1].any()


@each
def test_a_shared_tree_is_its_episodes(options: dict[str, Any]) -> None:
    """An action of several episodes has a credit of its own in each; counts weigh like separate rows; so do metrics."""
    for seed in range(3):
        w = world(seed, gap=0.5)
        algorithm = ADCA(**options)
        trees = groups(w, blank=0.1)
        apart = [unshared(t) for t in trees]
        equal(gradient(w, algorithm, trees), gradient(w, algorithm, apart))
        ours, theirs = credit_of(w, algorithm, trees)[1].stats, credit_of(w, algorithm, apart)[1].stats
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_one_mean_advantage_would_not_do() -> None:
    """The control for the test above: with the mean of its credits a shared token learns otherwise."""
    w = world(1, gap=0.8)
    trees, algorithm = groups(w), ADCA(alpha=1.0)
    batch, credit = credit_of(w, algorithm, trees)
    new = w.forward(batch, *w.numbers())
    net_T = credit.plus_T + credit.minus_T
    hard = replace(credit, plus_T=net_T.clamp_min(0), minus_T=net_T.clamp_max(0))
    assert abs(algorithm.loss(batch, new, credit).total - algorithm.loss(batch, new, hard).total) > 1e-3


# -- without labels it is GRPO -----------------------------------------------------------------------------------

SHARED = {"aggregation": "seq-mean-token-mean", "clip_low": 0.1, "clip_high": 0.3, "dual_clip": 1.4, "kl_coef": 0.1}


@pytest.mark.parametrize("options", [{}, SHARED])
def test_switched_off_it_is_grpo_bit_for_bit(options: dict[str, Any]) -> None:
    for seed in range(4):
        w = world(seed, gap=0.5)
        trees = groups(w)
        off, grpo = gradient(w, ADCA(enable=False, **options), trees), gradient(w, GRPO(**options), trees)
        assert off[0] == grpo[0] and torch.equal(off[1], grpo[1]) and grpo[1].any()
        batch, credit = credit_of(w, ADCA(enable=False), trees)
        theirs = GRPO().action_advantage(batch, GRPO().credit(batch, None))
        assert torch.equal(ADCA().action_advantage(batch, credit), theirs)
        assert "unjudged" not in credit.stats
        assert not torch.equal(gradient(w, ADCA(**options), trees)[1], grpo[1])  # the control


def test_when_labels_stop_the_outcomes_keep_their_scale() -> None:
    """Without labels, and with labels that say nothing (all GOOD), the same: GRPO's but for the deviation."""
    for skip in ("none", "skip_small_adv", "skip_all_neg"):
        w = world(1)
        trees = groups(w, blank=1.0)
        silent = gradient(w, ADCA(skip_type=skip), trees)
        assert credit_of(w, ADCA(skip_type=skip), trees)[1].stats["unjudged"] == 1.0
        for root in trees:
            for node in root.walk():
                node.label = True
        praised = gradient(w, ADCA(), trees)
        assert silent[0] == pytest.approx(praised[0], abs=1e-15)
        torch.testing.assert_close(silent[1], praised[1])
        assert not torch.allclose(silent[1], gradient(w, GRPO(), trees)[1]), "the control"
