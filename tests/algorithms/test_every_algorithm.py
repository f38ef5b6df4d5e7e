"""What every algorithm of the dictionary must keep, whoever wrote it. Each promise has a control that can fail."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_trees import World, actions, states, unshared, world
from every_algorithm import EVERY, Step, annotate, differ, each, equal, flat, groups, update, with_kl

from agents.tree import Kind, Node
from algorithms import ALGORITHMS, Algorithm
from algorithms.adca import ADCA
from algorithms.controls.exact_critic import ExactCritic
from algorithms.controls.naive_ac import NaiveAC
from algorithms.grpo import GRPO
from algorithms.pacs import PACS
from algorithms.selfac import SelfAC

# -- pieces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [2, 5])
@each
def test_a_batch_cut_into_pieces_is_the_whole(algorithm: Algorithm[Any], pieces: int) -> None:
    w = world(3, gap=0.5)
    trees, algorithm = groups(w, 6), with_kl(algorithm)
    whole = update(w, algorithm, trees)
    equal(update(w, algorithm, trees, pieces), whole)
    assert whole[1].any() and bool(whole[2].any()) is (algorithm.needs.critic or algorithm.needs.token_critic)


@each
def test_the_mean_of_its_trees_would_not_be_the_batch(algorithm: Algorithm[Any]) -> None:
    """The control: what a loss of each piece by itself would give."""
    w = world(3, gap=0.5)
    trees = groups(w, 6)
    alone = [update(w, algorithm, [tree]) for tree in trees]
    mean = sum(s[0] for s in alone) / 6, *(torch.stack([s[i] for s in alone]).mean(0) for i in (1, 2))
    assert differ(mean, update(w, algorithm, trees))


# -- groups that teach nothing -----------------------------------------------------------------------------------


def compares(algorithm: Algorithm[Any]) -> bool:
    """False for the variants that take an episode's reward, its labels or its probability as they are."""
    match algorithm:
        case (
            GRPO(baseline="none", scale="none")
            | GRPO(kl_in_reward=True)
            | PACS(estimator="naive")
            | PACS(reward_method="mean_logp")
        ):
            return False
        case ADCA(enable=True, do_batch_norm=False):
            return False
    return True


@pytest.mark.parametrize("paid", [0.7, 1 / 3, 0.0])
@each
def test_where_all_is_equal_the_policy_learns_nothing(algorithm: Algorithm[Any], paid: float) -> None:
    """For a critic: where it foresaw the return. PACS draws such a group together later on, not in its first step."""
    w = world(0)
    root = flat(w, [paid] * 5)
    for state in states(root):
        state.oracle = float(paid > 0.5)
    w.value, foreseen_S = [paid] * w.tokens, torch.full((6,), paid, dtype=torch.float64)
    learned = bool(update(w, algorithm, [root], same=True, continued_S=foreseen_S)[1].any())
    assert not learned if compares(algorithm) else (learned or paid <= 0.5)
    root.children[1].reward, root.children[1].label = paid - 1, paid <= 0.5  # the control: one of them ends otherwise
    end = root.children[1].children[0]
    end.success, end.oracle = not end.success, float(not end.success)
    assert update(w, algorithm, [root], same=True, continued_S=foreseen_S)[1].any()


# -- order and sharing -------------------------------------------------------------------------------------------


@each
def test_siblings_and_tasks_have_no_order(algorithm: Algorithm[Any]) -> None:
    w = world(4, gap=0.5)
    trees, algorithm = groups(w), with_kl(algorithm)
    before = update(w, algorithm, trees)
    for root in trees:
        for node in root.walk():
            node.children.reverse()
    equal(update(w, algorithm, trees[::-1]), before)
    for action in (action for root in trees for action in actions(root)):  # the control: who was paid what counts
        action.reward = -action.reward
    for root in trees:
        annotate(w, root)
    assert differ(update(w, algorithm, trees), before)


def shares_means(algorithm: Algorithm[Any]) -> bool:
    """Whether a state is worth the mean over what was tried in it, so that sharing is more than saving.

    Self-AC's TD targets and traces run along the tree: an action that several episodes share is credited with the mean
    of what followed. Sharing the text of a whole path changes nothing for them either: a count is that many episodes.
    """
    if isinstance(algorithm, SelfAC) and algorithm.literal:
        return False  # the source has no tree
    return isinstance(algorithm, SelfAC | NaiveAC) or (isinstance(algorithm, ExactCritic) and algorithm.gae_lambda > 0)


@each
def test_shared_tokens_are_the_duplicated_batch(algorithm: Algorithm[Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.5)
        trees, tried = groups(w), with_kl(algorithm)
        shared, apart = update(w, tried, trees), update(w, tried, [unshared(tree) for tree in trees])
        if shares_means(tried):
            assert differ(shared, apart), "then it need not be excused"
        else:
            equal(shared, apart)
    once = [replace(tree, children=[replace(a, count=1) for a in tree.children]) for tree in trees]
    assert differ(shared, update(w, tried, once)), "the control: counts are looked at"


@each
def test_a_count_is_that_many_episodes(algorithm: Algorithm[Any]) -> None:
    w = world(5, gap=0.5)
    tried, counts, outcomes = with_kl(algorithm), (2, 1, 3), (1.0, 0.0, 0.2)
    root, other = flat(w, list(outcomes)), groups(w, 2)
    single = replace(root, children=[a for a, n in zip(root.children, counts, strict=True) for _ in range(n)])
    root.children = [replace(a, count=n) for a, n in zip(root.children, counts, strict=True)]
    equal(update(w, tried, [root, *other]), update(w, tried, [single, *other]))


# -- what broke, and what is not there ---------------------------------------------------------------------------


def chains(w: World, n: int) -> Node:
    """A group of episodes of three turns that share the task only."""
    root = Node(Kind.STATE, w.text(1), oracle=0.5, anchor="a")
    for i in range(n):
        state = root
        for turn in range(3):
            action = w.action()
            action.label = w.rng.random() < 0.5
            state = state.add(action).add(Node(Kind.STATE, w.text(1), oracle=w.rng.random(), anchor=f"{turn}"))
        state.terminated, state.success, state.oracle = True, i % 2 == 0, float(i % 2 == 0)
    return root


def is_nothing(step: Step) -> bool:
    return step[0] == 0 and not step[1].any() and not step[2].any()


@each
def test_what_broke_is_not_there(algorithm: Algorithm[Any]) -> None:
    """The loss and the gradient of the batch without the faulted episode."""
    w = world(7, gap=0.5)
    root, other = chains(w, 5), chains(w, 3)
    tried, broken = with_kl(algorithm), root.children[2]
    without = replace(root, children=[a for a in root.children if a is not broken])
    clean = update(w, tried, [without, other])
    assert differ(update(w, tried, [root, other]), clean), "the control: a sound one is there"
    states(broken.children[0])[-1].fault = "the sandbox died"
    equal(update(w, tried, [root, other]), clean)


@pytest.mark.parametrize("paid", [math.nan, -math.inf])
@each
def test_what_was_not_scored_teaches_nothing(algorithm: Algorithm[Any], paid: float) -> None:
    """Nothing about what was said in it; the others are compared among themselves."""
    w = world(7, gap=0.01)
    root, other = chains(w, 5), chains(w, 3)
    blank = root.children[2]
    said = [token for action in [blank, *actions(blank.children[0])] for token in action.tokens]
    assert update(w, algorithm, [root, other])[1][said].any(), "the control: a scored one teaches"
    blank.children[0].children[0].reward = paid
    _, logp_grad, _ = update(w, algorithm, [root, other])
    assert not logp_grad[said].any() and logp_grad.any()


@each
def test_nothing_is_not_finite(algorithm: Algorithm[Any]) -> None:
    """Faults and rewards that are no numbers anywhere in shared trees, silent episodes, groups of one: all at once."""
    for seed in range(4):
        w = world(seed, gap=0.5)
        trees, tried = groups(w, 6), with_kl(algorithm)
        for root in trees[:3]:
            ends = [state for state in states(root) if not state.children]
            w.rng.choice(ends).fault = "broken"
            w.rng.choice(actions(root)).reward = w.rng.choice([math.nan, math.inf, -math.inf])
        silent = w.state()
        silent.terminated, silent.oracle, silent.success = True, 0.5, False
        update(w, tried, [*trees, silent, flat(w, [1.0]), flat(w, [1.0, 1.0])])


@each
def test_an_episode_in_which_nothing_was_said(algorithm: Algorithm[Any]) -> None:
    w = world(2, gap=0.5)
    trees, silent, two = groups(w), w.state(), flat(w, [1.0, 0.0])
    silent.terminated, silent.success, silent.oracle = True, True, 1.0
    alone = update(w, algorithm, trees)
    equal(update(w, algorithm, [*trees, silent]), alone)
    assert differ(update(w, algorithm, [*trees, two]), alone), "the control: what was said counts"


@each
def test_batches_of_nothing(algorithm: Algorithm[Any]) -> None:
    """No word, no episode that did not break, no number for any: the loss is 0, and so is the gradient."""
    w = world(3, gap=0.5)
    roots = [w.state(), w.state()]
    for state in roots:
        state.oracle = 0.5
    tried = with_kl(algorithm)
    assert is_nothing(update(w, tried, roots))
    trees = [*groups(w, 2), chains(w, 3)]
    assert not is_nothing(update(w, tried, trees)), "the control"
    for root in trees:
        for state in states(root):
            state.fault = None if state.children else "broken"
    assert is_nothing(update(w, tried, trees))


@each
def test_log_ratios_out_of_all_bounds(algorithm: Algorithm[Any]) -> None:
    w = world(6)
    trees = groups(w)
    for far in (1e3, -1e3, 1e30, -1e30):
        w.new = [old + far * (-1) ** i for i, old in enumerate(w.old)]
        assert update(w, algorithm, trees)[1].abs().max() <= 1e3


@each
def test_its_loss_starts_from_the_old_policy_where_it_says_so(algorithm: Algorithm[Any]) -> None:
    w = world(3, gap=0.5)
    trees = groups(w)
    one = update(w, algorithm, trees)
    w.old = [logp - 0.1 * (i % 3) for i, logp in enumerate(w.old)]
    assert differ(update(w, algorithm, trees), one) is algorithm.needs.ratios


def test_they_are_all_there() -> None:
    assert {type(algorithm) for algorithm in EVERY.values()} == set(ALGORITHMS.values())
    assert GRPO() in EVERY.values()
