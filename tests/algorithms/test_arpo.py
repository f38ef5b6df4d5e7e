"""ARPO: the loss against a loop over episodes written out, soft and hard, and the rule by which it forks."""

import math
import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_pieces import in_pieces
from algorithm_trees import World, counted, paths, unshared, world
from torch import Tensor

from agents.rollout.forking.settings import ForkPlan, ForkPoint
from agents.tree import Node
from algorithms.arpo import ARPO
from algorithms.formulas.groups import Aggregation
from algorithms.grpo import GRPO

each_mode = pytest.mark.parametrize("mode", Aggregation)


def groups(w: World, trees: int = 3) -> list[Node]:
    return [counted(w, w.tree()) for _ in range(trees)]


def gradient(w: World, algorithm: Any, trees: list[Node]) -> tuple[float, Tensor]:
    """The loss, and its gradient with respect to the log-probability of every token there is."""
    logp, value = w.numbers()
    batch = w.batch(trees, critic=False)
    new = w.forward(batch, logp, value)
    total = algorithm.loss(batch, new, algorithm.credit(batch, new)).total
    total.backward()
    return float(total.detach()), logp.grad


def hard_by_loop(w: World, algorithm: ARPO, trees: list[Node]) -> tuple[float, Tensor]:
    """The paper: every episode on its own, but a shared token has the mean advantage of the d episodes through it."""
    rows: list[tuple[list[int], float]] = []
    adv_of: dict[int, list[float]] = {}
    for root in trees:
        episodes = [path for path in paths(root) for _ in range(path[-1][0].count)]
        returns = [sum(action.reward for action, _ in path) for path in episodes]
        n, mean = len(returns), sum(returns) / len(returns)
        std = math.sqrt(sum((r - mean) ** 2 for r in returns) / (n - 1)) if n > 1 else 0.0
        for path, r in zip(episodes, returns, strict=True):
            adv = (r - mean) / (std + algorithm.std_eps) if std else 0.0
            tokens = [t for action, _ in path for t in action.tokens]
            rows.append((tokens, adv))
            for token in tokens:
                adv_of.setdefault(token, []).append(adv)
    logp, _ = w.numbers()
    old = torch.tensor(w.old, dtype=torch.float64)
    terms: list[list[Tensor]] = []
    for tokens, _ in rows:
        terms.append([])
        for token in tokens:
            adv = sum(adv_of[token]) / len(adv_of[token])
            r = (logp[token] - old[token]).clamp(-20, 20).exp()
            best = torch.minimum(r * adv, r.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high) * adv)
            terms[-1].append(-best.clamp_min(algorithm.dual_clip * adv) if adv < 0 else -best)
    total = aggregate(algorithm, terms)
    total.backward()
    return float(total.detach()), logp.grad


def aggregate(algorithm: ARPO, terms: Sequence[Sequence[Tensor]]) -> Tensor:
    sums = [torch.stack(list(row)).sum() for row in terms]
    lengths = [len(row) for row in terms]
    whole = torch.stack(sums)
    if algorithm.aggregation == Aggregation.TOKEN_MEAN:
        return whole.sum() / sum(lengths)
    if algorithm.aggregation == Aggregation.TOKEN_SUM:
        return whole.sum()
    if algorithm.aggregation == Aggregation.SEQ_MEAN_TOKEN_SUM:
        return whole.mean()
    if algorithm.aggregation == Aggregation.SEQ_MEAN_TOKEN_SUM_NORM:
        return whole.mean() / algorithm.length_norm
    return (whole / torch.tensor(lengths)).mean()


# -- the loss --------------------------------------------------------------------------------------------------------


@each_mode
def test_soft_is_grpo_of_the_episodes_written_out(mode: Aggregation) -> None:
    for seed in range(4):
        w = world(seed, gap=0.6)
        trees = groups(w)
        mine = gradient(w, ARPO(aggregation=mode, kl_coef=0.2), trees)
        theirs = gradient(w, GRPO(aggregation=mode, kl_coef=0.2), [unshared(tree) for tree in trees])
        assert mine[0] == pytest.approx(theirs[0], abs=1e-12)
        torch.testing.assert_close(mine[1], theirs[1], atol=1e-12, rtol=1e-10)


@each_mode
def test_hard_is_the_mean_advantage_of_those_who_share_a_token(mode: Aggregation) -> None:
    for seed in range(4):
        w = world(seed, gap=0.6)
        trees, algorithm = groups(w), ARPO(advantage="hard", aggregation=mode)
        mine, theirs = gradient(w, algorithm, trees), hard_by_loop(w, algorithm, trees)
        assert mine[0] == pytest.approx(theirs[0], abs=1e-12)
        torch.testing.assert_close(mine[1], theirs[1], atol=1e-12, rtol=1e-10)


def test_soft_and_hard_differ_where_the_clip_does() -> None:
    w = world(1, gap=0.8)
    trees = groups(w)
    assert abs(gradient(w, ARPO(), trees)[0] - gradient(w, ARPO(advantage="hard"), trees)[0]) > 1e-3
    near = world(1, gap=0.0)
    trees = groups(near)
    soft, hard = (gradient(near, ARPO(advantage=a), trees) for a in ("soft", "hard"))
    torch.testing.assert_close(soft[1], hard[1], atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("advantage", ["soft", "hard"])
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_tree_in_pieces_has_the_same_gradient(advantage: str, pieces: int) -> None:
    w = world(3, gap=0.6)
    trees = [counted(w, w.tree(depth=4)) for _ in range(5)]
    algorithm = ARPO(advantage=advantage)
    whole = gradient(w, algorithm, trees)
    found = in_pieces(w, algorithm, trees, pieces)
    assert found[0] == pytest.approx(whole[0], abs=1e-12)
    torch.testing.assert_close(found[1], whole[1], atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("advantage", ["soft", "hard"])
def test_the_order_of_siblings_changes_nothing(advantage: str) -> None:
    w = world(4, gap=0.6)
    trees = groups(w)
    before = gradient(w, ARPO(advantage=advantage), trees)
    for tree in trees:
        for node in tree.walk():
            node.children.reverse()
    after = gradient(w, ARPO(advantage=advantage), trees)
    assert after[0] == pytest.approx(before[0], abs=1e-12)
    torch.testing.assert_close(after[1], before[1], atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("advantage", ["soft", "hard"])
def test_a_group_of_equal_returns_teaches_nothing(advantage: str) -> None:
    w = world(6, gap=0.6)
    tree = w.tree()
    for path in paths(tree):
        for action, _ in path:
            action.reward = 0.0
    assert not gradient(w, ARPO(advantage=advantage), [tree])[1].any()


# -- the rule --------------------------------------------------------------------------------------------------------


def point(now: float, first: float, left: int = 9, tokens: int = 1) -> ForkPoint:
    return ForkPoint((now,) * tokens, (first,) * tokens, live=1, made=1, left=left, calls=1)


@pytest.mark.parametrize("rise", [-3.0, -1.0, 0.0, 0.5, 3.0])
def test_the_chance_of_a_fork(rise: float) -> None:
    """P = clip(p + w rise, 0, 1)."""
    arpo = ARPO(branch_probability=0.4, entropy_weight=0.3, reduce="sum")
    chance = min(1.0, max(0.0, 0.4 + 0.3 * rise))
    rng = random.Random(0)
    forks = [arpo.branch(point(5 + rise, 5.0), rng) for _ in range(4000)]
    assert set(forks) <= {0, 1} and sum(forks) / 4000 == pytest.approx(chance, abs=0.03)


def test_literal_decisions() -> None:
    class Drawn(random.Random):
        def __init__(self, *numbers: float) -> None:
            super().__init__()
            self.numbers = list(numbers)

        def random(self) -> float:
            return self.numbers.pop(0)

    arpo = ARPO(beam_size=4, branch_probability=0.5, entropy_weight=0.2, reduce="sum")
    rng = Drawn(0.50, 0.61, 0.59, 0.1)
    assert arpo.branch(point(1.0, 0.5), rng) == 2 and rng.numbers == [0.1]  # 0.40 yes, 0.51 no, 0.49 yes
    assert arpo.branch(point(1.0, 0.5, left=1), rng) == 1 and not rng.numbers
    assert replace(arpo, beam_size=1).branch(point(9.0, 0.0), rng) == 0
    sure = replace(arpo, decision="threshold", threshold=0.6)
    assert sure.branch(point(1.0, 0.49), rng) == 3 and sure.branch(point(1.0, 0.51), rng) == 0
    assert sure.branch(point(1.0, 0.49, left=2), rng) == 2


def test_the_papers_normaliser_is_a_weight() -> None:
    """P = alpha + beta (sum H_t - sum H_first) / V with H in nats, above tau [ARPO, equation 3], for V = 50."""
    size, alpha, beta, tau = 50, 0.4, 3.0, 0.5
    arpo = ARPO(
        reduce="sum",
        decision="threshold",
        branch_probability=alpha,
        threshold=tau,
        entropy_weight=beta * math.log(size) / size,
    )
    rng, found = random.Random(1), set()
    for _ in range(200):
        now, first = ([rng.uniform(0, math.log(size)) for _ in range(4)] for _ in range(2))
        forks = alpha + beta * (sum(now) - sum(first)) / size > tau
        here = replace(
            point(0.0, 0.0),
            entropy=tuple(x / math.log(size) for x in now),
            first_entropy=tuple(x / math.log(size) for x in first),
        )
        assert bool(arpo.branch(here, rng)) is forks
        found.add(forks)
    assert found == {True, False}


def test_how_entropies_become_a_number() -> None:
    shares = [0.1, 0.2, 0.3, 0.4]
    assert ARPO(reduce="sum", lookahead=3).entropy(shares) == pytest.approx(0.6)
    assert ARPO(lookahead=3).entropy(shares) == pytest.approx(0.6)
    assert ARPO(lookahead=8).entropy(shares) == pytest.approx(2.0), "a short turn is not a sure one"
    assert ARPO(reduce="sum", lookahead=8).entropy(shares) == pytest.approx(1.0)
    assert ARPO().entropy([]) == 0


def test_a_plan_travels() -> None:
    arpo = ARPO(group=6, initial_rollouts=2)
    plan = pickle.loads(pickle.dumps(ForkPlan(arpo.sampling, arpo.branch)))
    assert (plan.sampling.group, plan.sampling.initial) == (6, 2)
    draws = [[rule(point(0.5, 0.5), random.Random(i)) for i in range(50)] for rule in (plan.rule, arpo.branch)]
    assert draws[0] == draws[1] and 0 < sum(draws[0]) < 50


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"initial_rollouts": 17}, r"initial_rollouts must lie in 1\.\.16, the group, but is 17: raise group"),
        ({"group": 4}, r"initial_rollouts must lie in 1\.\.4"),
        ({"initial_rollouts": 0}, "initial_rollouts must lie in"),
        ({"group": 1, "initial_rollouts": 1}, "group must be at least 2"),
        ({"beam_size": 0}, "beam_size must be at least 1"),
        ({"lookahead": 0}, "lookahead must be at least 1"),
        ({"branch_probability": 1.1}, r"branch_probability must lie in 0\.\.1"),
        ({"threshold": -0.1}, r"threshold must lie in 0\.\.1"),
        ({"entropy_weight": math.nan}, "entropy_weight must be a number"),
        ({"decision": "sometimes"}, "Decision must be one of random, threshold"),
        ({"measure": "none"}, "Measure must be one of"),
        ({"dual_clip": 0.5}, "dual_clip must be above 1"),
    ],
)
def test_wrong_settings_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as error:
        ARPO(**wrong)
    assert "\n" not in str(error.value)
