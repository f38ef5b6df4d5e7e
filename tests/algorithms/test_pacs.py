"""PACS against a loop over its episodes, written down from the paper, and its promises on shared trees."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from algorithm_trees import World, counted, paths, unshared, world
from torch import Tensor

from agents.tree import Kind, Node
from algorithms.pacs import PACS, Anchor, Estimator, RewardMethod, Weighting

METHODS = list(product(RewardMethod, Anchor))
ESTIMATORS = [("rloo", "floor"), ("grpo", "none"), ("grpo", "floor"), ("grpo", "source"), ("naive", "none")]


def verdicts(w: World, root: Node) -> Node:
    """Some of the episodes solved, whatever they were paid; at least one of each kind where there are two."""
    leaves = [node for node in root.walk() if node.kind is Kind.STATE and not node.children]
    for i, leaf in enumerate(leaves):
        leaf.success = i % 2 == 0 if i < 2 else w.rng.random() < 0.4
    return root


def groups(w: World, trees: int = 3) -> list[Node]:
    return [verdicts(w, counted(w, w.tree())) for _ in range(trees)]


def gradient(w: World, algorithm: PACS, trees: list[Node], same: bool = False) -> tuple[float, Tensor]:
    """The loss, and its gradient with respect to the log-probability of every token there is."""
    logp, value = w.numbers(same)
    batch = w.batch(trees, critic=False)
    new = w.forward(batch, logp, value)
    loss = algorithm.loss(batch, new, algorithm.credit(batch, new))
    loss.total.backward()
    assert loss.total.isfinite() and logp.grad.isfinite().all() and all(map(math.isfinite, loss.stats.values()))
    return float(loss.total.detach()), logp.grad


def equal(ours: tuple[float, Tensor], theirs: tuple[float, Tensor], atol: float = 1e-12) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=atol)
    torch.testing.assert_close(ours[1], theirs[1], atol=atol, rtol=1e-9)


def by_loop(w: World, algorithm: PACS, trees: list[Node]) -> tuple[float, Tensor]:
    """The objective as printed, one row per episode, without any sharing."""
    logp, _ = w.numbers()
    old, ref = (torch.tensor(x, dtype=torch.float64) for x in (w.old, w.ref))
    losses: list[Tensor] = []
    kls: list[Tensor] = []
    for root in trees:
        episodes = [path for path in paths(root) for _ in range(path[-1][0].count)]
        n = len(episodes)
        if n == 1 and algorithm.estimator != "naive":
            continue
        rewards, labels = [], [1.0 if path[-1][1].success else 0.0 for path in episodes]
        for path in episodes:
            tokens = [t for action, _ in path for t in action.tokens]
            x = logp[tokens] - ref[tokens]
            kls += list(torch.exp(-x) + x - 1)
            if algorithm.reward_method == "mean_logp":
                gap = logp[tokens]
            else:
                gap = logp[tokens] - (old if algorithm.anchor == "old" else ref)[tokens]
            reward = algorithm.beta * gap.sum()
            rewards.append(reward if algorithm.reward_method == "log_ratio" else reward / len(tokens))
        score = torch.stack(rewards)
        for i in range(n):
            if algorithm.estimator == "rloo":
                adv = score[i] - (score.sum() - score[i]) / (n - 1)
            elif algorithm.estimator == "naive":
                adv = score[i]
            else:
                adv = score[i] - score.mean()
                if algorithm.spread == "source":
                    adv = adv / (score.std() + 1e-6)
                elif algorithm.spread == "floor":
                    adv = adv / max(score.std().item(), 1e-2)
            kinds = len(set(labels))
            weight = {
                "none": 1.0,
                "question": n / (kinds * labels.count(labels[i])),
                "only_positive": labels[i],
                "only_negative": 1 - labels[i],
            }[algorithm.weight]
            p = torch.sigmoid(adv)
            losses.append(-weight * (labels[i] * torch.log(p) + (1 - labels[i]) * torch.log(1 - p)))
    total = torch.stack(losses).mean()
    if algorithm.kl_coef:
        total = total + algorithm.kl_coef * torch.stack(kls).mean()
    total.backward()
    return float(total.detach()), logp.grad


@pytest.mark.parametrize(("estimator", "spread"), ESTIMATORS)
@pytest.mark.parametrize(("method", "anchor"), METHODS)
def test_the_loss_is_the_printed_one(method: str, anchor: str, estimator: str, spread: str) -> None:
    for seed, weight in enumerate(Weighting):
        w = world(seed)
        algorithm = PACS(
            reward_method=method, anchor=anchor, estimator=estimator, spread=spread, weight=weight, beta=1 + seed / 2
        )
        trees = groups(w)
        ours = gradient(w, algorithm, trees)
        equal(ours, by_loop(w, algorithm, trees))
        assert ours[1].any()


def test_with_a_divergence() -> None:
    w = world(7)
    trees = [tree for tree in groups(w, 5) if sum(p[-1][0].count for p in paths(tree)) > 1]
    equal(gradient(w, PACS(kl_coef=0.3), trees), by_loop(w, PACS(kl_coef=0.3), trees))


@pytest.mark.parametrize(("estimator", "spread"), ESTIMATORS)
@pytest.mark.parametrize("method", RewardMethod)
def test_a_shared_tree_is_its_episodes(method: str, estimator: str, spread: str) -> None:
    """Leaves of count c, and tokens of many episodes: the loss and the gradient of one chain per episode."""
    for seed, weight in enumerate(Weighting):
        w = world(seed, gap=0.5)
        algorithm = PACS(reward_method=method, estimator=estimator, spread=spread, weight=weight)
        trees = groups(w)
        equal(gradient(w, algorithm, trees), gradient(w, algorithm, [unshared(t) for t in trees]))


def test_counts_are_needed_for_that() -> None:
    """The control: with every leaf counted once, loss and gradient are others."""
    w = world(1)
    trees = groups(w)
    batch, (logp, value) = w.batch(trees, critic=False), w.numbers()
    assert (batch.count_L > 1).any()
    new, once = w.forward(batch, logp, value), replace(batch, count_L=torch.ones_like(batch.count_L))
    losses = [PACS().loss(b, new, PACS().credit(b, new)).total for b in (batch, once)]
    assert abs(losses[0] - losses[1]) > 1e-3


def flat(w: World, labels: list[bool | None], tokens: int = 1) -> Node:
    """A group of one-turn episodes with these verdicts; every one of them is paid 0.05."""
    root = Node(Kind.STATE, w.text(1))
    for label in labels:
        action = root.add(Node(Kind.ACTION, w.text(tokens), reward=0.05))
        action.add(Node(Kind.STATE, (), terminated=True, success=label))
    return root


def test_by_hand() -> None:
    """Scores 0.4 and -0.2 of one right and one wrong episode: logits 0.6 and -0.6."""
    w = world(0)
    root = flat(w, [True, False])
    w.new = [old + gap for old, gap in zip(w.old, (0.0, 0.4, -0.2), strict=True)]
    loss, grad = gradient(w, PACS(), [root])
    assert loss == pytest.approx(math.log(1 + math.exp(-0.6)), abs=1e-12)  # both say 0.437488
    # d loss / d score = 2 (g_1 - mean g), g = (sigmoid(0.6) - 1, sigmoid(-0.6)) / 2 = (-0.177, 0.177)
    sigmoid = 1 / (1 + math.exp(0.6))
    assert grad.tolist() == pytest.approx([0.0, -sigmoid, sigmoid], abs=1e-12)
    assert sigmoid == pytest.approx(0.354344, abs=1e-6)


def test_question_weights_by_hand() -> None:
    """One right among four: it weighs 4 / (2 * 1) = 2, each wrong one 4 / (2 * 3) = 2/3; all wrong: 1."""
    w = world(0)
    batch = w.batch([flat(w, [True, False, False, False]), flat(w, [False, False])], critic=False)
    weight_L = PACS().credit(batch, w.forward(batch, *w.numbers())).weight_L
    assert weight_L.tolist() == pytest.approx([2, 2 / 3, 2 / 3, 2 / 3, 1, 1])


@pytest.mark.parametrize("weight", ["none", "question"])
def test_the_first_step_is_reinforce_with_leave_one_out(weight: str) -> None:
    """-d loss / d log pi = 1/B n/(n-1) (y - mean y), with weights too where right and wrong ones are as many."""
    w = world(2)
    labels = [True, False, False, True, False, True]
    root = flat(w, labels, tokens=3)
    _, grad = gradient(w, PACS(weight=weight), [root], same=True)
    adv = [6 / 5 * (float(label) - 0.5) for label in labels]
    for action, a in zip(root.children, adv, strict=True):
        assert grad[list(action.tokens)].tolist() == pytest.approx([-a / 6] * 3, abs=1e-15)
    batch = w.batch([root], critic=False)
    credit = PACS(weight=weight).credit(batch, w.forward(batch, *w.numbers()))
    assert PACS(weight=weight).action_advantage(batch, credit).tolist() == pytest.approx(adv, abs=1e-15)


def test_what_is_told_apart_stops_teaching() -> None:
    """The implicit critic: with logits of +-30 the gradient is gone; the other way round it is full."""
    w = world(0)
    root = flat(w, [True, False])
    for far, slope in ((15.0, 0.0), (-15.0, 1.0)):
        w.new = [old + gap for old, gap in zip(w.old, (0.0, far, -far), strict=True)]
        _, grad = gradient(w, PACS(), [root])
        assert grad.tolist() == pytest.approx([0, -slope, slope], abs=1e-9)


def test_the_reward_is_not_looked_at() -> None:
    w = world(4)
    trees = groups(w)
    before = gradient(w, PACS(), trees)
    for root in trees:
        for node in root.walk():
            node.reward = 100 - 3 * node.reward
    assert torch.equal(gradient(w, PACS(), trees)[1], before[1])
    for root in trees:  # the control: the verdicts are
        for node in root.walk():
            node.success = None if node.success is None else not node.success
    assert not torch.equal(gradient(w, PACS(), trees)[1], before[1])


@pytest.mark.parametrize(("estimator", "spread"), ESTIMATORS[:4])
@pytest.mark.parametrize("label", [True, False])
def test_a_group_of_one_verdict_begins_with_no_gradient(label: bool, estimator: str, spread: str) -> None:
    w = world(5)
    root = flat(w, [label] * 7, tokens=2)
    algorithm = PACS(estimator=estimator, spread=spread)
    assert not gradient(w, algorithm, [root], same=True)[1].any()
    assert gradient(w, algorithm, [root])[1].abs().max() > 1e-4  # later it draws the group together


@pytest.mark.parametrize("estimator", Estimator)
def test_a_group_of_one(estimator: str) -> None:
    w = world(6)
    loss, grad = gradient(w, PACS(estimator=estimator), [flat(w, [True])])
    assert bool(loss) is bool(grad.any()) is (estimator == "naive")


def test_what_is_no_part_of_a_group() -> None:
    """Faults, episodes without a verdict or a number, and silent ones: as if they were not there."""
    w = world(8)
    full, other = flat(w, [True, False, None, True, False]), flat(w, [False, True])
    full.children[3].children[0].fault = "the sandbox died"
    full.children[4].reward = math.nan
    silent = w.state()
    silent.success = True
    kept = replace(full, children=full.children[:2])
    for estimator in Estimator:
        algorithm = PACS(estimator=estimator)
        theirs = gradient(w, algorithm, [full, silent, other])
        assert torch.equal(theirs[1], gradient(w, algorithm, [kept, other])[1]) and theirs[1].any()
    batch = w.batch([full, silent, other], critic=False)
    stats = PACS().loss(batch, w.forward(batch, *w.numbers()), PACS().credit(batch, None)).stats
    assert stats["unlabelled"] == pytest.approx(2 / 6)  # of the six that were played to an end


def test_float32_models_are_welcome() -> None:
    w = world(11)
    batch = w.batch(groups(w), critic=False)
    batch = replace(batch, old_logp_T=batch.old_logp_T.float(), ref_logp_T=None)
    logp_T = batch.old_logp_T.clone().requires_grad_()
    new = replace(w.forward(batch, *w.numbers()), logp_T=logp_T)
    loss = PACS().loss(batch, new, PACS().credit(batch, new))
    loss.total.backward()
    assert loss.total.dtype == torch.float64 and logp_T.grad.dtype == torch.float32 and logp_T.grad.any()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": 1}, "estimator rloo needs a group of at least 2: raise group, or take the estimator naive"),
        ({"group": 1, "estimator": "grpo"}, "estimator grpo needs a group of at least 2"),
        ({"group": 0, "estimator": "naive"}, "group must be at least 1, not 0"),
        ({"beta": 0.0}, "beta must be above 0, not 0.0"),
        ({"beta": math.nan}, "beta must be above 0, not nan"),
        ({"kl_coef": -0.1}, "kl_coef must not be negative"),
        ({"anchor": "new"}, "Anchor must be one of old, reference, not 'new'"),
        ({"reward_method": "1"}, "RewardMethod must be one of log_ratio, mean_logp, mean_ratio"),
        ({"weight": "all"}, "Weighting must be one of none, question, only_positive, only_negative"),
    ],
)
def test_wrong_settings_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        PACS(**wrong)
    assert "\n" not in str(raised.value)


def test_what_it_asks_for() -> None:
    assert PACS(group=1, estimator="naive").sampling.group == 1
    assert PACS(anchor="reference").needs.reference and not PACS().needs.reference
    assert not PACS(anchor="reference", reward_method="mean_logp").needs.reference
    w = world(12)
    batch = replace(w.batch(groups(w), critic=False), ref_logp_T=None)
    algorithm = PACS(anchor="reference")
    with pytest.raises(ValueError, match="ref_logp_T"):
        algorithm.loss(batch, w.forward(batch, *w.numbers()), algorithm.credit(batch, None))
