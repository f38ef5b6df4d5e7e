"""Advantages are normalised over a whole update, however it is split: into minibatches, pieces or ranks."""

from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import pytest
import torch
from algorithm_trees import World, world
from every_algorithm import EVERY, groups

from agents.tree import Node
from algorithms import Algorithm
from algorithms.controls.exact_critic import ExactCritic
from algorithms.controls.naive_ac import NaiveAC
from algorithms.formulas.maths import Moments
from algorithms.grpo import GRPO
from algorithms.ppo import PPO
from algorithms.selfac import SelfAC
from algorithms.turn_ppo import TurnPPO

NORMALISING = {name: algorithm for name, algorithm in EVERY.items() if algorithm.needs.moments}


def push(w: World, algorithm: Algorithm[Any], trees: list[Node], over: Moments | None = None) -> torch.Tensor:
    """The first step's gradient with respect to every token's log-probability."""
    batch = w.batch(trees, critic=algorithm.needs.critic)
    logp, value = w.numbers(same=True)
    new = w.forward(batch, logp, value)
    credit = algorithm.credit(batch, new.detach())
    credit = credit if over is None else algorithm.scaled(batch, credit, over)
    algorithm.loss(batch, new, credit).total.backward()
    assert logp.grad is not None
    return logp.grad


def share(part: torch.Tensor, whole: torch.Tensor) -> tuple[float, float]:
    """(what the whole's gradient is of the part's, on the part's tokens; how far from any multiple it is)."""
    here = part != 0
    times = float((whole[here] * part[here]).sum() / part[here].square().sum())
    return times, float((whole[here] - times * part[here]).abs().max() / whole[here].abs().max())


@pytest.mark.parametrize("algorithm", NORMALISING.values(), ids=NORMALISING)
def test_parts_of_an_update_are_the_update(algorithm: Algorithm[Any]) -> None:
    """Each part's gradient is the update's there, but for the size of the means; the shares add up to 1."""
    w = world(20)
    parts = [groups(w, 3, blank=0.0) for _ in range(3)]
    for scale, trees in zip((1.0, 4.0, 0.3), parts, strict=True):
        for root in trees:
            for node in root.walk():
                node.reward *= scale
                if node.oracle is not None:
                    node.oracle *= scale
    whole = push(w, algorithm, [root for trees in parts for root in trees])
    batches = [w.batch(trees, critic=algorithm.needs.critic) for trees in parts]
    logp, value = w.numbers(same=True)
    over = reduce(add, (algorithm.moments(b, algorithm.credit(b, w.forward(b, logp, value).detach())) for b in batches))
    together = [share(push(w, algorithm, trees, over), whole) for trees in parts]
    alone = [share(push(w, algorithm, trees), whole) for trees in parts]
    assert max(off for _, off in together) < 1e-9
    assert sum(times for times, _ in together) == pytest.approx(1, abs=1e-9)
    assert max(off for _, off in alone) > 1e-3 or abs(sum(times for times, _ in alone) - 1) > 0.05, "the control"


def test_moments_of_parts_add_up() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, dtype=torch.float64, generator=generator) * 3 + 100
    weight = torch.randint(0, 4, (40,), generator=generator)
    whole = Moments.of(x, weight)
    each = [x[i].item() for i in range(40) for _ in range(int(weight[i]))]
    assert float(whole.variance) == pytest.approx(torch.tensor(each, dtype=torch.float64).var().item())
    for ends in ([0, 40, 40], [0, 1, 2, 17, 40], [0, 20, 40]):
        parts = [Moments.of(x[a:b], weight[a:b]) for a, b in pairwise(ends)]
        for order in (parts, parts[::-1]):
            found = reduce(add, order)
            for name in ("count", "mean", "variance", "low", "high"):
                torch.testing.assert_close(getattr(found, name).double(), getattr(whole, name).double())
    nothing = Moments.of(x[:0], weight[:0])
    assert float((nothing + whole).variance) == pytest.approx(float(whole.variance)) and float(nothing.count) == 0


def test_which_algorithms_normalise_over_the_batch() -> None:
    for algorithm in (SelfAC(), NaiveAC(), TurnPPO(), PPO(), ExactCritic(), GRPO(scale="batch")):
        assert algorithm.needs.moments
    assert GRPO(group=1, baseline="none", scale="tokens").needs.moments and GRPO(scale="tokens").needs.moments
    assert not any(a.needs.moments for a in (GRPO(), SelfAC(normalize="none", gae_lambda=1.0), GRPO(scale="none")))
