"""What a critic can be ablated by, in the formula: lambda chosen from what it foresaw, and a loss of its own."""

from dataclasses import replace

import pytest
import torch
from algorithm_trees import World, counted, unshared, world

from agents.tree import Batch, Forward
from algorithms.formulas.returns import turn_advantage
from algorithms.selfac import SelfAC

ADAPTIVE = SelfAC(adaptive_lambda=True, gae_lambda=0.4, normalize="none", discount=0.9)


def realised(batch: Batch, value_S: torch.Tensor) -> torch.Tensor:
    """What came after each turn, a limit's end being worth V."""
    end_S = torch.where(batch.terminated_S, 0, value_S)
    return turn_advantage(batch, value_S, end_S, 0.9, 1.0) + value_S[batch.state_A]


def episodes(seed: int) -> tuple[World, Batch, Forward]:
    """Six chains of four turns."""
    w = world(seed)
    batch = w.batch([w.chain(4) for _ in range(6)])
    return w, batch, w.forward(batch, *w.numbers())


def critic(batch: Batch, share: float) -> torch.Tensor:
    """Values that foresee the returns in part: V = mean + share (R - mean), whose explained variance is known."""
    value_S = torch.zeros(batch.prev_S.numel(), dtype=torch.float64)
    batch_ended = replace(batch, terminated_S=torch.ones_like(batch.terminated_S))
    return_A = realised(batch_ended, value_S)
    return value_S.index_put((batch.state_A,), return_A.mean() + share * (return_A - return_A.mean()))


@pytest.mark.parametrize(("share", "foreseen"), [(0.0, 0.0), (0.5, 0.75), (1.0, 1.0), (-1.0, 0.0)])
def test_lambda_falls_with_what_the_critic_foresaw(share: float, foreseen: float) -> None:
    """Explained variance 1 - (1 - share)^2; below 0 it counts as 0."""
    _, batch, new = episodes(0)
    batch = replace(batch, terminated_S=torch.ones_like(batch.terminated_S))
    credit = ADAPTIVE.credit(batch, replace(new, value_S=critic(batch, share)))
    assert credit.gae_lambda == pytest.approx(1 - 0.6 * foreseen)
    assert ADAPTIVE.loss(batch, new, credit).stats["gae_lambda"] == credit.gae_lambda


def test_the_loss_is_that_of_the_chosen_lambda() -> None:
    """Chosen before the update: values that moved since change the advantages, not lambda."""
    _, batch, new = episodes(1)
    old = replace(new, value_S=critic(replace(batch, terminated_S=torch.ones_like(batch.terminated_S)), 0.5))
    credit = ADAPTIVE.credit(batch, old)
    assert 0.4 < credit.gae_lambda < 1
    fixed = replace(ADAPTIVE, adaptive_lambda=False, gae_lambda=credit.gae_lambda)
    for algorithm in (fixed, replace(fixed, freeze_adv=True)):
        adaptive = replace(algorithm, adaptive_lambda=True, gae_lambda=0.4)
        theirs = algorithm.loss(batch, new, algorithm.credit(batch, old))
        ours = adaptive.loss(batch, new, adaptive.credit(batch, old))
        assert torch.equal(ours.total, theirs.total)
        assert torch.equal(
            adaptive.action_advantage(batch, adaptive.credit(batch, old)),
            algorithm.action_advantage(batch, algorithm.credit(batch, old)),
        )
    floor = replace(fixed, gae_lambda=0.4)
    assert not torch.equal(floor.loss(batch, new, floor.credit(batch, old)).total, ours.total)


def test_off_it_says_and_changes_nothing() -> None:
    _, batch, new = episodes(2)
    credit = SelfAC().credit(batch, new)
    assert credit.gae_lambda is None and "gae_lambda" not in SelfAC().loss(batch, new, credit).stats
    with pytest.raises(ValueError, match="set gae_lambda below 1"):
        SelfAC(adaptive_lambda=True)


def test_faulted_episodes_have_no_say_in_lambda() -> None:
    w = world(3)
    broken, trees = w.chain(3), [w.chain(3) for _ in range(4)]
    list(broken.walk())[-1].fault = "the page server died"
    found = []
    for some in ([broken, *trees], trees):
        batch = w.batch(some)
        found.append(ADAPTIVE.credit(batch, w.forward(batch, *w.numbers())).gae_lambda)
    assert found[0] == found[1]


def test_the_critic_alone_is_the_critics_part_of_the_loss() -> None:
    w = world(4)
    batch = w.batch([counted(w, w.tree()) for _ in range(3)])
    logp, value = w.numbers()
    algorithm = SelfAC(alpha=0.3)
    new = w.forward(batch, logp, value)
    only = algorithm.critic_only(batch, new)
    only.backward()
    alone, value.grad = value.grad, None
    assert logp.grad is None and alone.any()
    new = w.forward(batch, logp, value)
    loss = algorithm.loss(batch, new, algorithm.credit(batch, new))
    loss.total.backward()
    assert float(only.detach()) == pytest.approx(0.3 * loss.stats["critic"])
    torch.testing.assert_close(alone, value.grad)


def test_sharing_changes_nothing_for_the_chosen_lambda() -> None:
    """On a chain that several episodes took, which is the only sharing that leaves Self-AC's returns alone."""
    w = world(5)
    root = w.chain(3)
    for node in root.walk():
        node.count = 3
    found = []
    for some in (root, unshared(root)):
        batch = w.batch([some])
        found.append(ADAPTIVE.credit(batch, w.forward(batch, *w.numbers())).gae_lambda)
    assert found[0] == pytest.approx(found[1])
