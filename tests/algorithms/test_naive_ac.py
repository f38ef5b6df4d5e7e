"""The naive actor-critic is Self-AC's formula; what is encoded apart gives what one pass gives."""

from typing import Any

import pytest
import torch
from algorithm_pieces import in_pieces
from algorithm_trees import counted, world

from algorithms.controls.naive_ac import NaiveAC
from algorithms.selfac import SelfAC

SETTINGS: list[dict[str, Any]] = [
    {},
    {"ratio": "token", "kl_coef": 0.1, "freeze_adv": True},
    {"literal": True, "td_grad": "residual", "normalize": "none", "discount": 0.9},
    {"gae_lambda": 0.5, "group": 4},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_number_is_that_of_selfac(settings: dict[str, Any]) -> None:
    w = world(0)
    batch = w.batch([counted(w, w.tree()) for _ in range(4)])
    found = []
    for algorithm in (SelfAC(**settings), NaiveAC(SelfAC(**settings))):
        logp, value = w.numbers()
        new = w.forward(batch, logp, value)
        credit = algorithm.credit(batch, new)
        loss = algorithm.loss(batch, new, credit)
        loss.total.backward()
        advantage = algorithm.action_advantage(batch, credit)
        only = algorithm.critic_only(batch, new).detach()
        asked = (algorithm.sampling, algorithm.needs.reference, algorithm.needs.critic, loss.stats)
        found.append((asked, (loss.total.detach(), logp.grad, value.grad, advantage, only)))
    (asked, tensors), (also_asked, others) = found
    assert asked == also_asked
    assert all(torch.equal(a, b) for a, b in zip(tensors, others, strict=True)) and tensors[1].any()
    assert NaiveAC().needs.separate_passes and not SelfAC().needs.separate_passes


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_cut_into_pieces(pieces: int) -> None:
    w = world(3)
    trees = [counted(w, w.tree()) for _ in range(5)]
    naive, selfac = (in_pieces(w, a, trees, pieces) for a in (NaiveAC(), SelfAC()))
    assert naive[0] == selfac[0] and torch.equal(naive[1], selfac[1])
