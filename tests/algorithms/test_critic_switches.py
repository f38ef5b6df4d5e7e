"""What a critic can be ablated by, in the formula: a loss of its own."""

import pytest
import torch
from algorithm_trees import counted, world

from algorithms.selfac import SelfAC
from algorithms.turn_ppo import TurnPPO


@pytest.mark.parametrize("algorithm", [SelfAC(alpha=0.3), TurnPPO(value_coef=0.3)], ids=["selfac", "turn_ppo"])
def test_the_critic_alone_is_the_critics_part_of_the_loss(algorithm: SelfAC | TurnPPO) -> None:
    w = world(4)
    batch = w.batch([counted(w, w.tree()) for _ in range(3)])
    logp, value = w.numbers()
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
