"""GiGPO against a loop over the rows of the batch in which nothing is shared, and its promises on shared trees."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from algorithm_trees import World, counted, paths, states, unshared, world
from torch import Tensor

from agents.tree import Kind, Node
from algorithms.formulas.groups import Aggregation
from algorithms.gigpo import GiGPO, Norm, Statistics, anchors


def groups(w: World, trees: int = 3) -> list[Node]:
    """Shared trees, some paths sampled more than once, in which states are met again."""
    roots = [counted(w, w.tree()) for _ in range(trees)]
    for root in roots:
        for state in states(root):
            state.anchor = w.rng.choice("abc")
    return roots


def update(w: World, algorithm: GiGPO, trees: list[Node], **change: Any) -> tuple[float, Tensor]:
    logp, value = w.numbers()
    batch = replace(w.batch(trees, critic=False), **change)
    new = w.forward(batch, logp, value)
    total = algorithm.loss(batch, new, algorithm.credit(batch, new)).total
    total.backward()
    return float(total.detach()), logp.grad


def centred(numbers: list[float], algorithm: GiGPO) -> list[float]:
    """The numbers of a group less their mean, divided by the deviation if so said; 0 where they are the same."""
    n, mean = len(numbers), sum(numbers) / len(numbers)
    if max(numbers) - min(numbers) <= 1e-8:
        return [0.0] * n
    std = math.sqrt(sum((x - mean) ** 2 for x in numbers) / (n - 1)) + algorithm.std_eps
    return [(x - mean) / (std if algorithm.norm == "mean_std_norm" else 1) for x in numbers]


def by_loop(w: World, algorithm: GiGPO, trees: list[Node]) -> tuple[float, Tensor]:
    """As in the paper, a row per turn and episode: (tokens, A_E + omega A_S), and the clipped loss of PPO."""
    rows: list[tuple[tuple[int, ...], float]] = []
    for root in trees:
        episodes = [path for path in paths(root) for _ in range(path[-1][0].count)]
        returns = [sum(action.reward for action, _ in path) for path in episodes]
        if algorithm.statistics == "rows":
            per_row = centred([r for r, path in zip(returns, episodes, strict=True) for _ in path], algorithm)
            place = [sum(len(p) for p in episodes[:i]) for i in range(len(episodes))]
            whole = [per_row[i] for i in place]
        else:
            whole = centred(returns, algorithm)
        met: dict[str, list[tuple[int, int, float]]] = {}
        for e, path in enumerate(episodes):
            before = [root, *(state for _, state in path)]
            rest = 0.0
            for k in reversed(range(len(path))):
                rest = path[k][0].reward + algorithm.discount * rest
                met.setdefault(before[k].anchor, []).append((e, k, rest))
        step: dict[tuple[int, int], float] = {}
        for group in met.values():
            step |= {(e, k): x for (e, k, _), x in zip(group, centred([g for *_, g in group], algorithm), strict=True)}
        for e, path in enumerate(episodes):
            rows += [(a.tokens, whole[e] + algorithm.omega * step[e, k]) for k, (a, _) in enumerate(path)]

    logp, _ = w.numbers()
    old, ref = (torch.tensor(x, dtype=torch.float64) for x in (w.old, w.ref))
    total = torch.zeros((), dtype=torch.float64)
    for tokens, adv in rows:
        losses = []
        for token in tokens:
            rho, x = torch.exp(logp[token] - old[token]), logp[token] - ref[token]
            gain = torch.minimum(rho * adv, rho.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high) * adv)
            if adv < 0:
                gain = torch.maximum(gain, torch.tensor(algorithm.dual_clip * adv, dtype=torch.float64))
            losses.append(algorithm.kl_coef * (torch.exp(-x) + x - 1) - gain)
        summed = torch.stack(losses).sum()
        total = (
            total
            + {
                "token-mean": summed / sum(len(tokens) for tokens, _ in rows),
                "token-sum": summed,
                "seq-mean-token-sum": summed / len(rows),
                "seq-mean-token-sum-norm": summed / len(rows) / algorithm.length_norm,
                "seq-mean-token-mean": summed / len(rows) / len(tokens),
            }[algorithm.aggregation]
        )
    total.backward()
    return float(total.detach()), logp.grad


SETTINGS = [
    *({"norm": n, "statistics": s, "omega": o} for n, s, o in product(Norm, Statistics, (0.0, 0.7))),
    *({"aggregation": mode, "length_norm": 7.0} for mode in Aggregation),
    {"discount": 0.0},
    {"discount": 1.0, "clip_low": 0.1, "clip_high": 0.28, "dual_clip": 1.4},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_loss_is_that_of_the_rows(settings: dict[str, Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.5)
        algorithm, trees = GiGPO(kl_coef=0.1, **settings), groups(w)
        loss, grad = update(w, algorithm, trees)
        expected_loss, expected_grad = by_loop(w, algorithm, trees)
        assert loss == pytest.approx(expected_loss, abs=1e-12)
        torch.testing.assert_close(grad, expected_grad, atol=1e-12, rtol=1e-10)
        assert grad.any()


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_shared_tree_is_its_episodes(settings: dict[str, Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.5)
        algorithm, trees = GiGPO(kl_coef=0.3, **settings), groups(w)
        shared, duplicated = update(w, algorithm, trees), update(w, algorithm, [unshared(t) for t in trees])
        assert shared[0] == pytest.approx(duplicated[0], abs=1e-12)
        torch.testing.assert_close(shared[1], duplicated[1], atol=1e-12, rtol=1e-10)


def test_one_mean_advantage_per_turn_would_not_do() -> None:
    """The control for the test above: the episodes that share a turn go different ways, and do not agree about it."""
    w = world(1, gap=0.8)
    trees, algorithm = groups(w), GiGPO()
    batch = w.batch(trees, critic=False)
    new = w.forward(batch, *w.numbers())
    credit = algorithm.credit(batch, new)
    net = credit.plus_T + credit.minus_T
    hard = replace(credit, plus_T=net.clamp_min(0), minus_T=net.clamp_max(0))
    assert (algorithm.loss(batch, new, credit).total - algorithm.loss(batch, new, hard).total).abs() > 1e-3


def two_ways() -> tuple[World, Node]:
    """start -a-> hall -b-> end (1), start -c-> hall -d-> end (0), start -e-> end (0)."""
    w = world(0)
    root = w.state()
    root.anchor = "start"
    for reward in (1.0, 0.0):
        hall = root.add(w.action(0.0)).add(w.state())
        hall.anchor = "hall"
        w.end(hall.add(w.action(reward)).add(w.state()))
    w.end(root.add(w.action(0.0)).add(w.state()))
    return w, root


def test_by_hand() -> None:
    w, root = two_ways()
    batch = w.batch([root], critic=False)
    new = w.forward(batch, *w.numbers())
    # Five rows; returns by row 1 1 0 0 0. From the start the discounted rests are 1/2, 0, 0; from the hall 1 and 0.
    for omega, statistics, mean in ((1.0, "rows", 2 / 5), (2.0, "episodes", 1 / 3)):
        credit = GiGPO(omega=omega, statistics=statistics, discount=0.5).credit(batch, new)
        assert credit.adv_A.tolist() == pytest.approx(
            [
                1 - mean + omega * (1 / 2 - 1 / 6),
                1 - mean + omega * (1 - 1 / 2),
                -mean + omega * (0 - 1 / 6),
                -mean + omega * (0 - 1 / 2),
                -mean + omega * (0 - 1 / 6),
            ]
        )
        assert credit.met == 1.0


def test_states_are_compared_within_their_task_only() -> None:
    w = world(2)
    first, second = groups(w, 2)
    alone, both = (w.batch(trees, critic=False) for trees in ([first], [first, second]))
    number = anchors(both)
    assert not set(number[both.tree_S == 0].tolist()) & set(number[both.tree_S == 1].tolist())
    credits = [GiGPO().credit(b, w.forward(b, *w.numbers())).adv_A for b in (alone, both)]
    assert torch.equal(credits[0], credits[1][: len(credits[0])])


def test_a_state_without_an_anchor_is_like_no_other() -> None:
    w, root = two_ways()
    compared = GiGPO().credit(w.batch([root], critic=False), None)
    for action in root.children:
        action.children[0].anchor = ""
    apart = GiGPO().credit(w.batch([root], critic=False), None)
    assert compared.met == 1.0 and apart.met == pytest.approx(3 / 5)
    assert compared.adv_A[1] - apart.adv_A[1] == pytest.approx(0.5)  # the hall said nothing without the other hall


@pytest.mark.parametrize("statistics", Statistics)
def test_faulted_episodes_are_not_there(statistics: Statistics) -> None:
    w = world(7)
    root = w.state()
    root.anchor = "a"
    for _ in range(5):
        hall = root.add(w.action()).add(w.state())
        hall.anchor = "b"
        w.end(hall.add(w.action()).add(w.state()))
    without = replace(root, children=root.children[:2] + root.children[3:])
    for node in root.children[2].walk():
        node.fault = None if node.kind is Kind.ACTION or node.children else "the sandbox died"
    algorithm = GiGPO(statistics=statistics, kl_coef=0.1)
    with_fault, clean = update(w, algorithm, [root]), update(w, algorithm, [without])
    torch.testing.assert_close(with_fault[1], clean[1], atol=1e-15, rtol=1e-12)
    assert with_fault[0] == pytest.approx(clean[0], abs=1e-14) and clean[1].any()
    assert not with_fault[1][list(root.children[2].tokens)].any()


def test_what_it_reports() -> None:
    w, root = two_ways()
    batch = replace(w.batch([root], critic=False), ref_logp_T=None)
    new = w.forward(batch, *w.numbers())
    stats = GiGPO().loss(batch, new, GiGPO().credit(batch, new)).stats
    assert stats["states_met_again"] == 1.0 and "kl" not in stats
    with pytest.raises(ValueError, match="ref_logp_T"):
        GiGPO(kl_coef=0.1).loss(batch, new, GiGPO().credit(batch, new))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": 1}, "group must be at least 2, not 1"),
        ({"omega": -1.0}, "omega must not be negative"),
        ({"discount": 1.1}, "discount must lie in 0..1, not 1.1"),
        ({"norm": "std"}, "Norm must be one of mean_norm, mean_std_norm, not 'std'"),
        ({"statistics": "turns"}, "Statistics must be one of rows, episodes"),
        ({"std_eps": math.nan}, "std_eps must not be negative"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1"),
    ],
)
def test_wrong_settings_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")) as raised:
        GiGPO(**wrong)
    assert "\n" not in str(raised.value)


def test_observations_that_are_nearly_the_same_are_one_state() -> None:
    """Nine of ten tokens are equal in the second and third episode's second state, none in the first's."""
    w = world(3)
    base, root = w.text(10), Node(Kind.STATE, w.text(1), anchor="root")
    for i, tokens in enumerate((w.text(10), base, base[:9] + w.text(1))):
        state = root.add(w.action(0.0)).add(Node(Kind.STATE, tokens, anchor=f"page {i}"))
        state.add(w.action(float(i))).add(Node(Kind.STATE, w.text(1), terminated=True))
    batch = w.batch([root], critic=False)
    second = [int(s) for s in batch.next_A.tolist() if batch.anchor_S[s].startswith("page")]
    for similarity, alike in ((1.0, False), (0.95, False), (0.9, True)):
        number_S = anchors(batch, similarity)
        one, two, three = (int(number_S[s]) for s in second)
        assert (two == three) is alike and one not in (two, three)
        credit = GiGPO(similarity=similarity).credit(batch, w.forward(batch, *w.numbers()))
        assert (credit.met > 0.5) is alike  # the root, where all three acted, is half of all rows


def test_refused_actions_cost_something() -> None:
    """The same as rewards that are less by it, for the episode and for the rest of it from each turn on."""
    w = world(5, gap=0.3)
    trees = groups(w)
    rng = w.rng
    for action in (a for root in trees for a in root.walk() if a.kind is Kind.ACTION):
        action.invalid = rng.random() < 0.4
    free, charged = update(w, GiGPO(), trees), update(w, GiGPO(invalid_cost=0.1), trees)
    for action in (a for root in trees for a in root.walk() if a.kind is Kind.ACTION):
        action.reward -= 0.1 * action.invalid
    by_hand = update(w, GiGPO(), trees)
    assert charged[0] == pytest.approx(by_hand[0], abs=1e-12) and charged[0] != pytest.approx(free[0], abs=1e-6)
    torch.testing.assert_close(charged[1], by_hand[1], atol=1e-12, rtol=1e-9)
