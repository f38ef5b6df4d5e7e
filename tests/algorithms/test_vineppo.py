"""VinePPO against a loop over the tree, by hand, and what becomes of states without a value."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_trees import World, states, world
from every_algorithm import groups, update
from torch import Tensor
from turn_loss_by_loop import loss_over_turns

from agents.tree import Node
from algorithms.base import Needs
from algorithms.vineppo import VinePPO


def valued(w: World, trees: list[Node]) -> list[Node]:
    """The same trees, with a value in every state."""
    for state in (state for root in trees for state in states(root)):
        state.continued = w.rng.uniform(-1, 2)
    return trees


def column(w: World, trees: list[Node]) -> Tensor:
    """continued_S of the batch, in the order of its states."""
    found: Tensor | None = w.batch(trees).continued_S
    assert found is not None
    return found


def by_loop(w: World, algorithm: VinePPO, trees: list[Node]) -> tuple[float, Tensor]:
    """A(a) = r + discount V(s') - V(s), V = 0 in a last state; then `loss_over_turns`."""
    turns = []
    for state in (state for root in trees for state in states(root)):
        for action in state.children:
            after = action.children[0]
            assert state.continued is not None and after.continued is not None
            later = after.continued if after.children else 0.0
            turns.append((action, action.reward + algorithm.discount * later - state.continued))
    return loss_over_turns(w, algorithm, turns)


@pytest.mark.parametrize(
    "options",
    [{}, {"discount": 0.8}, {"normalize": "none", "ratio": "turn"}, {"normalize": "std", "clip": 0.05}],
    ids=str,
)
def test_the_loss_is_the_printed_one(options: dict[str, Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.4)
        algorithm = VinePPO(**options)
        trees = valued(w, groups(w))
        loss, logp_grad, value_grad = update(w, algorithm, trees, continued_S=column(w, trees))
        expected, gradient = by_loop(w, algorithm, trees)
        # The batch holds values in float32.
        assert loss == pytest.approx(expected, abs=1e-6)
        torch.testing.assert_close(logp_grad, gradient, atol=1e-6, rtol=1e-5)
        assert gradient.any() and not value_grad.any()
        other = by_loop(w, replace(algorithm, discount=0.5), trees)[1]
        assert not torch.allclose(other, gradient, atol=1e-4), "the control"


def chain(told: list[float | None], paid: list[float], *, truncated: bool = False) -> tuple[World, Node]:
    """One episode whose states have these values, the last one none of its own."""
    w = world(0)
    root = state = w.state()
    for value, reward in zip(told, paid, strict=True):
        state.continued = value
        action = w.action()
        action.reward = reward
        state = state.add(action).add(w.state())
    state.terminated, state.truncated, state.continued = not truncated, truncated, 9.0
    return w, root


@pytest.mark.parametrize("truncated", [False, True])
def test_an_episode_by_hand(truncated: bool) -> None:
    """What is noted in the last state plays no part, however the episode ended."""
    w, root = chain([0.5, 0.75, 0.25], [0.0, 0.1, 1.0], truncated=truncated)
    batch, algorithm = w.batch([root]), VinePPO(discount=0.5)
    credit = algorithm.credit(batch, w.forward(batch, *w.numbers()))
    expected = [0.5 * 0.75 - 0.5, 0.1 + 0.5 * 0.25 - 0.75, 1.0 - 0.25]
    assert algorithm.action_advantage(batch, credit).tolist() == pytest.approx(expected)


def test_a_turn_beside_a_state_without_a_value_does_not_count() -> None:
    w, root = chain([0.5, None, 0.25, 0.5], [0.0, 0.0, 0.0, 1.0])
    batch, algorithm = w.batch([root]), VinePPO()
    credit = algorithm.credit(batch, w.forward(batch, *w.numbers()))
    assert credit.count_A.tolist() == [0, 0, 1, 1]
    assert algorithm.action_advantage(batch, credit).tolist() == pytest.approx([0, 0, 0.25, 0.5])


def test_without_any_value_it_refuses() -> None:
    w, root = chain([None, None], [0.0, 1.0])
    batch = w.batch([root])
    for lacking in (batch, replace(batch, continued_S=None)):
        with pytest.raises(ValueError, match=r"^VinePPO needs episodes that the policy played on from the states$"):
            VinePPO().credit(lacking, w.forward(batch, *w.numbers()))


def test_what_it_asks_for() -> None:
    assert VinePPO().needs == Needs(continuations=3, moments=True)
    assert VinePPO(continuations=9, discount=0.9, normalize="none", kl_coef=0.1).needs == Needs(
        continuations=9, discount=0.9, reference=True
    )
    free = Needs(continuations=3, moments=True, count_continuations=False)
    assert VinePPO(count_continuations=False).needs == free
    with pytest.raises(ValueError, match="continuations must be at least 1, not 0"):
        VinePPO(continuations=0)
