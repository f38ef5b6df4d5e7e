"""The exact critic against a loop over the tree, its two ends, and what it refuses and does not look at."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_trees import World, actions, states, world
from every_algorithm import equal, groups, update
from torch import Tensor
from turn_loss_by_loop import loss_over_turns

from agents.tree import Kind, Node
from algorithms.base import Needs
from algorithms.controls.exact_critic import ExactCritic


def by_loop(w: World, algorithm: ExactCritic, trees: list[Node]) -> tuple[float, Tensor]:
    """A(a) = V(s') - V(s) + lambda mean over what was tried in s' of A; then `loss_over_turns`."""

    def advantage(state: Node, action: Node) -> float:
        after = action.children[0]
        assert state.oracle is not None and after.oracle is not None
        own = after.oracle - state.oracle
        tried = [(following.count, advantage(after, following)) for following in after.children]
        later = sum(n * a for n, a in tried) / sum(n for n, _ in tried) if tried else 0.0
        return own + algorithm.gae_lambda * later

    turns = [
        (action, advantage(state, action)) for root in trees for state in states(root) for action in state.children
    ]
    return loss_over_turns(w, algorithm, turns, 0.1 if algorithm.std_floor is None else algorithm.std_floor)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gae_lambda": 1.0},
        {"gae_lambda": 0.5, "normalize": "whiten"},
        {"normalize": "none", "ratio": "token"},
        {"ratio": "turn_mean", "clip": 0.05},
        {"std_floor": 2.0, "dual_clip": 1.2, "clip": 0.1},
    ],
    ids=str,
)
def test_the_loss_is_the_printed_one(options: dict[str, Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.4)
        trees, algorithm = groups(w), ExactCritic(**options)
        loss, logp_grad, value_grad = update(w, algorithm, trees)
        expected, gradient = by_loop(w, algorithm, trees)
        # The batch holds the oracle's numbers in float32.
        assert loss == pytest.approx(expected, abs=1e-6)
        torch.testing.assert_close(logp_grad, gradient, atol=1e-6, rtol=1e-5)
        assert gradient.any() and not value_grad.any()
        other = replace(algorithm, gae_lambda=0.2 if algorithm.gae_lambda > 0.6 else 0.8)
        assert not torch.allclose(by_loop(w, other, trees)[1], gradient, atol=1e-4), "the control"


def chain(told: list[float | None]) -> tuple[World, Node]:
    """One episode whose states are worth these."""
    w = world(0)
    root = state = w.state()
    state.oracle = told[0]
    for number in told[1:]:
        state = state.add(w.action()).add(w.state())
        state.oracle = number
    state.terminated = True
    return w, root


def test_its_two_ends_by_hand() -> None:
    """lambda 0: what the turn changed by itself. lambda 1: the verdict less the chance there was before it."""
    w, root = chain([0.5, 0.75, 0.25, 1.0])
    batch = w.batch([root])
    for gae_lambda, expected in (
        (0.0, [0.25, -0.5, 0.75]),
        (1.0, [0.5, 0.25, 0.75]),
        (0.5, [0.25 + 0.5 * (-0.5 + 0.5 * 0.75), -0.5 + 0.5 * 0.75, 0.75]),
    ):
        algorithm = ExactCritic(gae_lambda=gae_lambda)
        credit = algorithm.credit(batch, w.forward(batch, *w.numbers()))
        assert algorithm.action_advantage(batch, credit).tolist() == pytest.approx(expected)
    assert batch.progress().tolist() == pytest.approx([0.25, -0.5, 0.75])


@pytest.mark.parametrize("blank", range(3))
def test_without_an_oracle_it_refuses(blank: int) -> None:
    told: list[float | None] = [0.5, 0.75, 1.0]
    told[blank] = None
    w, root = chain(told)
    batch = w.batch([root])
    with pytest.raises(ValueError, match="needs an environment whose oracle tells the chance of success") as raised:
        ExactCritic().credit(batch, w.forward(batch, *w.numbers()))
    assert "\n" not in str(raised.value)


def test_it_asks_for_the_oracle_and_for_no_critic() -> None:
    assert ExactCritic().needs == Needs(oracle=True, moments=True)
    assert ExactCritic(group=3).sampling.group == 3


def test_rewards_have_no_part_in_it() -> None:
    w = world(1, gap=0.4)
    trees = groups(w)
    before = update(w, ExactCritic(gae_lambda=0.5), trees)
    for action in (action for root in trees for action in actions(root)):
        action.reward = 10 * w.rng.random()
    equal(update(w, ExactCritic(gae_lambda=0.5), trees), before)
    for node in trees[0].walk():  # the control: the oracle has
        node.oracle = None if node.kind is not Kind.STATE else w.rng.random()
    assert not torch.allclose(update(w, ExactCritic(gae_lambda=0.5), trees)[1], before[1], atol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": 0}, "group must be at least 1, not 0"),
        ({"gae_lambda": 1.1}, "gae_lambda must lie in 0..1, not 1.1"),
        ({"std_floor": -1.0}, "std_floor must not be negative, but is -1.0"),
        ({"std_floor": 0.1, "normalize": "none"}, "std_floor only works with normalize std, lift or whiten"),
        ({"clip": 1.0}, "clip must lie between 0 and 1, not 1.0"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1, not 1.0"),
        ({"ratio": "episode"}, "TurnRatio must be one of turn, turn_mean, token, not 'episode'"),
        ({"normalize": "max"}, "AdvantageScale must be one of none, std, lift, whiten, not 'max'"),
    ],
)
def test_wrong_settings_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")):
        ExactCritic(**wrong)
