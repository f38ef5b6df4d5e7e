"""Turn-PPO against a loop over the turns of every episode, and its promises on shared trees."""

import math
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from algorithm_trees import World, counted, paths, unshared, world
from torch import Tensor
from turn_loss_by_loop import centre

from agents.tree import Forward, Kind, Node
from algorithms.formulas.maths import AdvantageScale
from algorithms.formulas.returns import TurnRows
from algorithms.formulas.turn_ratio import TurnRatio
from algorithms.turn_ppo import TurnPPO


def groups(w: World, trees: int = 3) -> list[Node]:
    return [counted(w, w.tree()) for _ in range(trees)]


def moved(w: World, shift: float = 0.3) -> Tensor:
    """Values after the update, as a leaf tensor: those of before, and a shift of each by its own amount."""
    noise = torch.randn(w.tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return (torch.tensor(w.value, dtype=torch.float64) + shift * noise).requires_grad_()


def update(w: World, algorithm: TurnPPO, trees: list[Node], **change: Any) -> tuple[float, Tensor, Tensor]:
    """Loss, and its gradient with respect to the log-probabilities and the current values."""
    logp, before = w.numbers()
    value = moved(w)
    batch = replace(w.batch(trees), **change)
    credit = algorithm.credit(batch, w.forward(batch, logp, before))
    total = algorithm.loss(batch, w.forward(batch, logp, value), credit).total
    total.backward()
    return float(total.detach()), logp.grad, value.grad


def by_loop(w: World, algorithm: TurnPPO, trees: list[Node]) -> tuple[float, Tensor, Tensor]:
    """PPO turn by turn: GAE from the back of each episode, whitened over the batch, and the two clipped losses."""
    logp, _ = w.numbers()
    value = moved(w)
    old, before = (torch.tensor(x, dtype=torch.float64) for x in (w.old, w.value))
    turns: list[tuple[tuple[int, ...], int, float, float]] = []  # tokens, where its value is read, A, target
    for root in trees:
        for path in (p for p in paths(root) for _ in range(p[-1][0].count)):
            place = [root.tokens[-1], *(state.tokens[-1] for _, state in path)]
            adv, later = 0.0, 0.0 if path[-1][1].terminated else float(before[place[-1]])
            for k in reversed(range(len(path))):
                now = float(before[place[k]])
                delta = path[k][0].reward + algorithm.discount * later - now
                adv, later = delta + algorithm.discount * algorithm.gae_lambda * adv, now
                turns.append((path[k][0].tokens, place[k], adv, adv + now))
    n, mean = len(turns), sum(adv for *_, adv, _ in turns) / len(turns)
    std = math.sqrt(sum((adv - mean) ** 2 for *_, adv, _ in turns) / (n - 1) + 1e-8)
    policy, critic = [], []
    for tokens, at, adv, target in turns:
        if algorithm.normalize != "none":
            adv = (adv - centre(algorithm, mean)) / std
        gaps = torch.stack([logp[t] - old[t] for t in tokens])
        ratios = {"turn": gaps.sum(), "turn_mean": gaps.mean(), "token": gaps}[algorithm.ratio].exp()
        gain = torch.minimum(ratios * adv, ratios.clamp(1 - algorithm.clip, 1 + algorithm.clip) * adv)
        if adv < 0:
            gain = torch.maximum(gain, torch.full_like(gain, algorithm.dual_clip * adv))
        policy.append(gain.mean())
        kept = before[at] + (value[at] - before[at]).clamp(-algorithm.value_clip, algorithm.value_clip)
        critic.append(torch.maximum((value[at] - target) ** 2, (kept - target) ** 2))
    total = -torch.stack(policy).mean() + algorithm.value_coef * torch.stack(critic).mean() / 2
    total.backward()
    return float(total.detach()), logp.grad, value.grad


def same(ours: tuple[float, Tensor, Tensor], theirs: tuple[float, Tensor, Tensor]) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=1e-12)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-12, rtol=1e-10)
        assert mine.any()


SETTINGS = [
    *({"ratio": r, "normalize": n} for r, n in product(TurnRatio, AdvantageScale)),
    *({"value_clip": c, "value_coef": 2.0} for c in (0.1, 1.0)),
    *({"discount": g, "gae_lambda": x} for g, x in ((1.0, 1.0), (0.5, 0.0), (0.0, 0.9))),
    {"clip": 0.05, "dual_clip": 1.2},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_loss_is_that_of_ppo(settings: dict[str, Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.5)
        trees, algorithm = groups(w), TurnPPO(**settings)
        same(update(w, algorithm, trees), by_loop(w, algorithm, trees))


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_shared_tree_is_its_episodes(settings: dict[str, Any]) -> None:
    """Sharing changes nothing, not even the advantages of a turn that several episodes go on from."""
    for seed in range(3):
        w = world(seed, gap=0.5)
        trees, algorithm = groups(w), TurnPPO(kl_coef=0.3, **settings)
        same(update(w, algorithm, trees), update(w, algorithm, [unshared(t) for t in trees]))


def test_one_mean_advantage_per_turn_would_not_do() -> None:
    """The control for the test above."""
    w = world(1, gap=0.8)
    trees, algorithm = groups(w), TurnPPO()
    batch = w.batch(trees)
    new = w.forward(batch, *w.numbers())
    credit = algorithm.credit(batch, new)
    net = credit.plus_A + credit.minus_A
    hard = replace(credit, plus_A=net.clamp_min(0), minus_A=net.clamp_max(0))
    assert (algorithm.loss(batch, new, credit).total - algorithm.loss(batch, new, hard).total).abs() > 1e-3


def chain(rewards: list[float], terminated: bool) -> tuple[World, Node]:
    w = world(0)
    root = state = w.state()
    for reward in rewards:
        state = state.add(w.action(reward)).add(w.state())
    state.terminated, state.truncated = terminated, not terminated
    return w, root


@pytest.mark.parametrize(("terminated", "end"), [(True, 0.0), (False, 0.4)])
def test_by_hand(terminated: bool, end: float) -> None:
    """Two turns, V = 0.5, 0.2, 0.4: the last value counts where a limit ended the episode, and only there."""
    w, root = chain([0.0, 1.0], terminated)
    batch = w.batch([root])
    value_S = torch.tensor([0.5, 0.2, 0.4], dtype=torch.float64)
    algorithm = TurnPPO(discount=0.5, gae_lambda=0.8, normalize="none")
    old = Forward(batch.old_logp_T, batch.old_logp_T, value_S)
    credit = algorithm.credit(batch, old)
    last = 1.0 + 0.5 * end - 0.2
    first = 0.0 + 0.5 * 0.2 - 0.5 + 0.5 * 0.8 * last
    assert credit.adv_P.tolist() == pytest.approx([first, last])
    assert algorithm.action_advantage(batch, credit).tolist() == pytest.approx([first, last])
    loss = algorithm.loss(batch, old, credit)
    assert loss.stats["critic"] == pytest.approx((first**2 + last**2) / 4)
    assert loss.stats["policy"] == pytest.approx(-(first + last) / 2)
    assert float(loss.total) == pytest.approx(-(first + last) / 2 + 0.5 * (first**2 + last**2) / 4)


def test_advantages_and_targets_are_those_of_before_the_update() -> None:
    """The critic's gradient is towards a fixed target; the policy's does not see the current values."""
    w = world(2)
    batch = w.batch(groups(w))
    algorithm = TurnPPO()
    logp, before = w.numbers()
    credit = algorithm.credit(batch, w.forward(batch, logp, before))
    policies = [
        algorithm.loss(batch, w.forward(batch, logp, v), credit).stats["policy"] for v in (before, moved(w, 3.0))
    ]
    assert policies[0] == policies[1]
    assert not any(x.requires_grad for x in (credit.adv_P, credit.value_P, credit.plus_A, credit.minus_A))


def test_where_the_value_is_clipped_it_learns_nothing() -> None:
    w, root = chain([1.0], True)
    batch = w.batch([root])
    algorithm = TurnPPO(value_clip=0.1)
    values = torch.tensor([0.0, 0.0], dtype=torch.float64)
    credit = algorithm.credit(batch, Forward(batch.old_logp_T, batch.old_logp_T, values))
    for at, learns in ((0.05, True), (0.5, False), (-0.5, True)):
        new_S = torch.tensor([at, 0.0], dtype=torch.float64, requires_grad=True)
        algorithm.loss(batch, Forward(batch.old_logp_T, batch.old_logp_T, new_S), credit).total.backward()
        assert bool(new_S.grad[0]) is learns  # the target is 1: a value that ran ahead towards it waits


def test_faulted_and_unscored_episodes_are_not_there() -> None:
    for breaks in ("fault", "reward"):
        w = world(7)
        root = w.state()
        for _ in range(5):
            w.end(root.add(w.action()).add(w.state()).add(w.action()).add(w.state()))
        without = replace(root, children=root.children[:2] + root.children[3:])
        first = root.children[2]
        if breaks == "fault":
            first.children[0].children[0].children[0].fault = "the sandbox died"
        else:
            first.children[0].children[0].reward = math.nan
        same(update(w, TurnPPO(kl_coef=0.1), [root]), update(w, TurnPPO(kl_coef=0.1), [without]))
        batch = w.batch([root])
        new = w.forward(batch, *w.numbers())
        adv_A = TurnPPO().action_advantage(batch, TurnPPO().credit(batch, new))
        assert adv_A.isfinite().all() and not adv_A[4:6].any()


def test_rows_follow_each_episode() -> None:
    """Every (turn, episode) pair once, and the next turn of the same episode: against the paths themselves."""
    w = world(8)
    for root in groups(w, 5):
        batch = w.batch([root])
        rows = TurnRows.of(batch, batch.count_L)
        number = {id(a): i for i, a in enumerate(n for n in root.walk() if n.kind is Kind.ACTION)}
        expected = [(number[id(a)], leaf, k) for leaf, path in enumerate(paths(root)) for k, (a, _) in enumerate(path)]
        assert sorted(zip(rows.action_P.tolist(), rows.leaf_P.tolist(), strict=True)) == sorted(
            (a, leaf) for a, leaf, _ in expected
        )
        following = {(a, leaf): None for a, leaf, _ in expected}
        for leaf, path in enumerate(paths(root)):
            for (a, _), (b, _) in pairwise(path):
                following[number[id(a)], leaf] = number[id(b)]
        for action, leaf, after in zip(*(x.tolist() for x in (rows.action_P, rows.leaf_P, rows.next_P)), strict=True):
            assert (None if after < 0 else int(rows.action_P[after])) == following[action, leaf]
        assert rows.turns == batch.turns


def test_what_it_reports_and_asks_for() -> None:
    w = world(9)
    batch = replace(w.batch(groups(w)), ref_logp_T=None)
    new = w.forward(batch, *w.numbers())
    stats = TurnPPO().loss(batch, new, TurnPPO().credit(batch, new)).stats
    assert "kl" not in stats and stats["explained_variance"] <= 1 and stats["advantage_std"] > 0
    with pytest.raises(ValueError, match="critic prompt"):
        TurnPPO().credit(batch, replace(new, value_S=None))
    with pytest.raises(ValueError, match="ref_logp_T"):
        TurnPPO(kl_coef=0.1).loss(batch, new, TurnPPO().credit(batch, new))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": 0}, "group must be at least 1, not 0"),
        ({"discount": 1.5}, "discount must lie in 0..1, not 1.5"),
        ({"gae_lambda": -0.1}, "gae_lambda must lie in 0..1"),
        ({"clip": 0.0}, "clip must lie between 0 and 1"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1"),
        ({"value_clip": 0.0}, "value_clip must be above 0"),
        ({"value_coef": math.nan}, "value_coef must not be negative"),
        ({"ratio": "sequence"}, "TurnRatio must be one of turn, turn_mean, token, not 'sequence'"),
    ],
)
def test_wrong_settings_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")) as raised:
        TurnPPO(**wrong)
    assert "\n" not in str(raised.value)
