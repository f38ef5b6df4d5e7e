"""Self-AC's lambda, not set: 1 while its critic explains little of the returns, 0.9 once it explains more."""

from dataclasses import replace
from functools import reduce
from operator import add

import pytest
import torch
from algorithm_trees import World, world

from agents.tree import Batch, Forward, Node
from algorithms.selfac import KNOWN, KNOWN_LAMBDA, SelfAC, TurnCredit

FOLLOWS = SelfAC(normalize="none")


def chains(w: World, numbers: int = 40) -> list[Node]:
    return [w.chain(3) for _ in range(numbers)]


def knowing(w: World, batch: Batch, share: float) -> Forward:
    """A forward whose values explain ``share`` of the returns: what they leave is as large as it must be."""
    new = w.forward(batch, *w.numbers(same=True))
    nothing_S = torch.zeros_like(new.value_S)
    return_A = FOLLOWS.left(batch, nothing_S, 1.0)
    noise_A = torch.tensor([w.rng.gauss(0, 1) for _ in return_A], dtype=torch.float64)
    noise_A -= noise_A.mean() + torch.cov(torch.stack([noise_A, return_A]))[0, 1] / return_A.var() * (
        return_A - return_A.mean()
    )
    # V = c G + noise leaves (1 - c) G - noise; with c = share, and a noise of variance share (1 - share) Var G.
    value_A = share * return_A + noise_A / noise_A.std() * return_A.std() * (share * (1 - share)) ** 0.5
    return replace(new, value_S=nothing_S.index_put((batch.state_A,), value_A))


def lambda_of(credit: TurnCredit, algorithm: SelfAC, batch: Batch, new: Forward) -> float:
    """The lambda that the gradient of the loss shows to have been used: 1 or the other, else an error."""
    logp_T = new.logp_T.detach().requires_grad_()
    algorithm.loss(batch, replace(new, logp_T=logp_T), credit).total.backward()
    found = []
    for gae_lambda in (1.0, KNOWN_LAMBDA):
        fixed, other_T = replace(algorithm, gae_lambda=gae_lambda), new.logp_T.detach().requires_grad_()
        fixed.loss(batch, replace(new, logp_T=other_T), fixed.credit(batch, new)).total.backward()
        found += [gae_lambda] if torch.equal(logp_T.grad, other_T.grad) else []
    assert len(found) == 1
    return found[0]


def all_ended(w: World, trees: list[Node]) -> Batch:
    batch = w.batch(trees)
    return replace(batch, terminated_S=torch.ones_like(batch.terminated_S))


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (KNOWN - 0.01, 1.0), (KNOWN + 0.01, 0.9), (0.8, 0.9)])
@pytest.mark.parametrize("freeze", [False, True])
def test_it_is_1_until_the_critic_explains_a_tenth(share: float, expected: float, freeze: bool) -> None:
    w, algorithm = world(1), replace(FOLLOWS, freeze_adv=freeze)
    batch = all_ended(w, chains(w))
    new = knowing(w, batch, share)
    credit = algorithm.credit(batch, new)
    assert lambda_of(credit, algorithm, batch, new) == expected
    stats = algorithm.loss(batch, new, credit).stats
    assert stats["explained_variance"] == pytest.approx(share) and stats["gae_lambda"] == expected


def test_it_stays_while_the_critic_learns() -> None:
    """Lambda is that of the critic before the update, also in a later minibatch of it."""
    w = world(2)
    batch = all_ended(w, chains(w))
    before, later = knowing(w, batch, 0.0), knowing(w, batch, 0.5)
    stats = FOLLOWS.loss(batch, later, FOLLOWS.credit(batch, before)).stats
    assert stats["explained_variance"] > KNOWN and stats["gae_lambda"] == 1.0


@pytest.mark.parametrize("normalize", ["none", "lift"])
def test_an_update_has_one_lambda(normalize: str) -> None:
    """Two parts, one of which alone would have another lambda, have that of the whole, which needs its own moments."""
    w, algorithm = world(3), replace(FOLLOWS, normalize=normalize, freeze_adv=True)
    batches = [all_ended(w, chains(w, 20)), all_ended(w, chains(w, 60))]
    forwards = [knowing(w, batch, share) for batch, share in zip(batches, (0.0, 0.6), strict=True)]
    alone = [algorithm.credit(batch, new) for batch, new in zip(batches, forwards, strict=True)]
    assert [credit.gae_lambda for credit in alone] == [1.0, 0.9]
    over = reduce(add, (algorithm.moments(b, credit) for b, credit in zip(batches, alone, strict=True)))
    together = [algorithm.scaled(b, credit, over) for b, credit in zip(batches, alone, strict=True)]
    assert [credit.gae_lambda for credit in together] == [0.9, 0.9]
    adv = torch.cat([credit.adv_P for credit in together])
    assert all(float(credit.over.mean) == pytest.approx(float(adv.mean())) for credit in together)
    assert all(float(credit.over.variance) == pytest.approx(float(adv.var())) for credit in together)
    assert not torch.equal(together[0].adv_P, alone[0].adv_P) and torch.equal(together[1].adv_P, alone[1].adv_P)


def test_it_needs_the_whole_update_even_where_nothing_is_normalised() -> None:
    assert FOLLOWS.needs.moments and not replace(FOLLOWS, gae_lambda=1.0).needs.moments
    assert not SelfAC(normalize_over="minibatch").needs.moments


def test_a_set_one_stays_and_literal_has_1() -> None:
    w = world(4)
    batch = all_ended(w, chains(w))
    new = knowing(w, batch, 0.8)
    for algorithm, expected in (
        (replace(FOLLOWS, gae_lambda=1.0), 1.0),
        (replace(FOLLOWS, gae_lambda=0.5), 0.5),
        (replace(FOLLOWS, literal=True), 1.0),
    ):
        credit = algorithm.credit(batch, new)
        assert credit.gae_lambda == expected and "gae_lambda" not in algorithm.loss(batch, new, credit).stats


def test_returns_that_are_all_the_same_are_not_explained() -> None:
    w = world(5)
    batch = all_ended(w, chains(w))
    batch = replace(batch, reward_A=torch.zeros_like(batch.reward_A))
    assert FOLLOWS.credit(batch, knowing(w, batch, 0.0)).gae_lambda == 1.0
