"""PPO with a critic of its own against a loop over the tokens of every episode, and its promises on shared trees."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_trees import World, counted, paths, states, unshared, world
from torch import Tensor
from turn_loss_by_loop import centre

from agents.tree import Batch, Forward, Node
from agents.tree.chunked_backward import backward, cut, forward_parts
from algorithms.base import Needs
from algorithms.formulas.groups import Aggregation
from algorithms.formulas.maths import AdvantageScale
from algorithms.formulas.token_gae import TokenRows, token_gae
from algorithms.ppo import PPO

Step = tuple[float, Tensor, Tensor]
"""Loss, and its gradient with respect to the log-probabilities and the values."""


def groups(w: World, trees: int = 3) -> list[Node]:
    return [counted(w, w.tree()) for _ in range(trees)]


def moved(w: World, shift: float = 0.3) -> Tensor:
    """Values after the update, as a leaf tensor: those of before, and a shift of each by its own amount."""
    noise = torch.randn(w.tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return (torch.tensor(w.value, dtype=torch.float64) + shift * noise).requires_grad_()


def update(w: World, algorithm: PPO, trees: list[Node], **change: Any) -> Step:
    logp, before = w.numbers()
    value = moved(w)
    batch = replace(w.batch(trees, critic=False), **change)
    credit = algorithm.credit(batch, w.forward(batch, logp, before))
    total = algorithm.loss(batch, w.forward(batch, logp, value), credit).total
    total.backward()
    return float(total.detach()), logp.grad, value.grad


def by_loop(w: World, algorithm: PPO, trees: list[Node]) -> Step:
    """PPO token by token: GAE from the back of each episode, the advantages scaled over all tokens, two clipped losses.

    A value is read at the token before the one that is sampled: the number of that token.
    """
    logp, _ = w.numbers()
    value = moved(w)
    before = torch.tensor(w.value, dtype=torch.float64)
    episodes: list[list[tuple[int, int, float, float]]] = []  # (token, the one before it, A, target) of each episode
    for root in trees:
        for path in (p for p in paths(root) for _ in range(p[-1][0].count)):
            sampled, last = [], root.tokens[-1]
            for action, state in path:
                for k, token in enumerate(action.tokens):
                    sampled.append((token, last, action.reward if k == len(action.tokens) - 1 else 0.0))
                    last = token
                last = state.tokens[-1]
            adv, later, rows = 0.0, 0.0 if path[-1][1].terminated else float(before[last]), []
            for token, place, paid in reversed(sampled):
                delta = paid + algorithm.discount * later - float(before[place])
                adv, later = delta + algorithm.discount * algorithm.gae_lambda * adv, float(before[place])
                rows.append((token, place, adv, adv + later))
            episodes.append(rows)
    advs = torch.tensor([adv for rows in episodes for _, _, adv, _ in rows], dtype=torch.float64)
    shift = centre(algorithm, float(advs.mean()))
    deviation = float(
        (advs.var().clamp_min((0.1 if algorithm.std_floor is None else algorithm.std_floor) ** 2) + 1e-8).sqrt()
    )
    scale = 1.0 if algorithm.normalize == "none" else deviation
    total = torch.zeros((), dtype=torch.float64)
    for rows in episodes:
        n, all_n = len(episodes), len(advs)
        weight = {
            "token-mean": 1 / all_n,
            "token-sum": 1.0,
            "seq-mean-token-sum": 1 / n,
            "seq-mean-token-sum-norm": 1 / (n * algorithm.length_norm),
            "seq-mean-token-mean": 1 / (n * len(rows)),
        }[algorithm.aggregation]
        for token, place, raw, target in rows:
            adv = (raw - shift) / scale
            ratio = (logp[token] - w.old[token]).exp()
            gain = torch.minimum(ratio * adv, ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high) * adv)
            if adv < 0:
                gain = torch.maximum(gain, torch.as_tensor(algorithm.dual_clip * adv, dtype=torch.float64))
            near = before[place] + (value[place] - before[place]).clamp(-algorithm.value_clip, algorithm.value_clip)
            critic = torch.maximum((value[place] - target) ** 2, (near - target) ** 2) / 2
            x = logp[token] - w.ref[token]
            kl = (-x).exp() + x - 1
            total = total + weight * (algorithm.value_coef * critic - gain + algorithm.kl_coef * kl)
    total.backward()
    return float(total.detach()), logp.grad, value.grad


def same(ours: Step, theirs: Step) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=1e-12)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-12, rtol=1e-10)
        assert mine.any()


SETTINGS: list[dict[str, Any]] = [
    {},
    *({"aggregation": mode, "length_norm": 7.0} for mode in Aggregation),
    *({"normalize": how} for how in AdvantageScale),
    *({"discount": g, "gae_lambda": x} for g, x in ((1.0, 0.95), (0.9, 0.5), (0.99, 0.0), (0.0, 1.0))),
    {"value_clip": 0.1, "value_coef": 2.0},
    {"clip_low": 0.05, "clip_high": 0.4, "dual_clip": 1.2, "std_floor": 5.0},
    {"kl_coef": 0.3},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_loss_is_that_of_ppo(settings: dict[str, Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.5)
        trees, algorithm = groups(w), PPO(**settings)
        same(update(w, algorithm, trees), by_loop(w, algorithm, trees))


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_shared_tree_is_its_episodes(settings: dict[str, Any]) -> None:
    """Sharing changes nothing, not even the advantages of a token that several episodes go on from."""
    for seed in range(3):
        w = world(seed, gap=0.5)
        trees, algorithm = groups(w), PPO(**settings)
        same(update(w, algorithm, trees), update(w, algorithm, [unshared(t) for t in trees]))


def test_one_mean_advantage_per_token_would_not_do() -> None:
    """The control for the test above."""
    w = world(1, gap=0.8)
    trees, algorithm = groups(w), PPO()
    batch = w.batch(trees, critic=False)
    new = w.forward(batch, *w.numbers())
    credit = algorithm.credit(batch, new)
    net = credit.plus_T + credit.minus_T
    hard = replace(credit, plus_T=net.clamp_min(0), minus_T=net.clamp_max(0))
    assert (algorithm.loss(batch, new, credit).total - algorithm.loss(batch, new, hard).total).abs() > 1e-3


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_cut_into_pieces(pieces: int, forget: bool) -> None:
    """Each part answers for the values of the tokens that it owns; counting a repeated one twice is noticed."""
    w = world(3, gap=0.5)
    algorithm, trees = PPO(kl_coef=0.3, value_clip=0.5, gae_lambda=0.9), groups(w, 5)
    batch = w.batch(trees, critic=False)
    budget = next(b for b in range(len(batch), 0, -1) if len(cut(batch, b)) >= pieces)
    assert len(cut(batch, budget)) == pieces
    logp, before = w.numbers()
    value = moved(w)

    def model(part: Batch, value: Tensor = value) -> Forward:
        new = replace(w.forward(part, logp, value), value_S=None)
        return replace(new, value_T=2 * new.value_T) if forget and len(part) < len(batch) else new

    credit = algorithm.credit(batch, forward_parts(lambda part: model(part, before), batch, budget))
    loss = backward(model, batch, lambda new: algorithm.loss(batch, new, credit), budget)
    ours = (float(loss.total.detach()), logp.grad, value.grad)
    if forget and pieces > 1:
        with pytest.raises(AssertionError):
            same(ours, update(w, algorithm, trees))
    else:
        same(ours, update(w, algorithm, trees))


def chain(rewards: list[float], terminated: bool) -> tuple[World, Node]:
    """Turns of two tokens each, every state one token."""
    w = world(0)
    root = state = replace(w.state(), tokens=w.text(1))
    for reward in rewards:
        action = replace(w.action(reward), tokens=w.text(2))
        state = state.add(action).add(replace(w.state(), tokens=w.text(1)))
    state.terminated, state.truncated = terminated, not terminated
    return w, root


@pytest.mark.parametrize(("terminated", "end"), [(True, 0.0), (False, 0.4)])
def test_by_hand(terminated: bool, end: float) -> None:
    """Two turns of two tokens: V before each of them, and after the observations that are skipped."""
    w, root = chain([0.0, 1.0], terminated)
    batch = w.batch([root], critic=False)
    # Root, two tokens, observation, two tokens, observation. The second token of a turn is no place to read a value
    # before the next turn: that is the observation after it.
    value_T = torch.tensor([0.5, 0.1, 9.0, 0.2, 0.3, 9.0, 0.4], dtype=torch.float64)
    algorithm = PPO(discount=0.5, gae_lambda=0.8, normalize="none")
    old = Forward(batch.old_logp_T, batch.old_logp_T, None, value_T)
    credit = algorithm.credit(batch, old)
    d = 1.0 + 0.5 * end - 0.3
    c = 0.5 * 0.3 - 0.2 + 0.4 * d
    b = 0.5 * 0.2 - 0.1 + 0.4 * c
    a = 0.5 * 0.1 - 0.5 + 0.4 * b
    assert credit.adv_P.tolist() == pytest.approx([a, b, c, d])
    assert algorithm.action_advantage(batch, credit).tolist() == pytest.approx([(a + b) / 2, (c + d) / 2])
    loss = algorithm.loss(batch, old, credit)
    assert loss.stats["policy"] == pytest.approx(-(a + b + c + d) / 4)
    assert loss.stats["critic"] == pytest.approx((a**2 + b**2 + c**2 + d**2) / 8)
    assert float(loss.total) == pytest.approx(loss.stats["policy"] + 0.5 * loss.stats["critic"])


def test_holes_are_skipped() -> None:
    """A mask with holes is the same row without them."""
    generator = torch.Generator().manual_seed(0)
    reward, value = torch.rand(2, 1, 6, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[1, 0, 0, 1, 1, 0]])
    end = torch.tensor([0.7], dtype=torch.float64)
    on = mask[0] > 0
    whole = token_gae(reward, value, end, mask, 0.9, 0.8)
    dense = token_gae(reward[:, on], value[:, on], end, torch.ones(1, 3), 0.9, 0.8)
    torch.testing.assert_close(whole[:, on], dense)
    assert not whole[:, ~on].any()
    assert not torch.allclose(token_gae(reward, value, end, torch.ones(1, 6), 0.9, 0.8)[:, on], dense)


def test_rows_are_the_sampled_tokens_of_every_episode() -> None:
    w = world(8)
    trees = groups(w, 4)
    batch = w.batch(trees, critic=False)
    rows = TokenRows.of(batch)
    expected = [[t for a, _ in path for t in a.tokens] for root in trees for path in paths(root)]
    matrix = rows.matrix(batch.token_T[rows.token_P] + 1)
    for leaf, tokens in enumerate(expected):
        assert (matrix[leaf, : len(tokens)] - 1).tolist() == tokens and not matrix[leaf, len(tokens) :].any()
    assert rows.length_L.tolist() == [len(tokens) for tokens in expected]


def test_advantages_and_targets_are_those_of_before_the_update() -> None:
    w = world(2)
    batch = w.batch(groups(w), critic=False)
    algorithm, (logp, before) = PPO(), w.numbers()
    credit = algorithm.credit(batch, w.forward(batch, logp, before))
    policies = [
        algorithm.loss(batch, w.forward(batch, logp, v), credit).stats["policy"] for v in (before, moved(w, 3.0))
    ]
    assert policies[0] == policies[1]
    assert not any(x.requires_grad for x in (credit.adv_P, credit.value_P, credit.plus_T, credit.minus_T))


def test_the_policy_learns_nothing_from_the_critic_alone() -> None:
    """`critic_only` is the critic's part of the loss, with targets from the present values."""
    w = world(4)
    batch = w.batch(groups(w), critic=False)
    algorithm, (logp, value) = PPO(value_coef=0.7, gae_lambda=0.9), w.numbers()
    new = w.forward(batch, logp, value)
    loss = algorithm.critic_only(batch, new)
    assert float(loss.detach()) == pytest.approx(
        0.7 * algorithm.loss(batch, new, algorithm.credit(batch, new)).stats["critic"]
    )
    loss.backward()
    assert logp.grad is None and value.grad.any()


def test_tokens_that_are_all_the_same_move_nothing_with_a_right_critic() -> None:
    w = world(0)
    root = w.state()
    for _ in range(4):
        w.end(root.add(w.action(0.7)).add(w.state()))
    for state in states(root):
        state.terminated, state.truncated = not state.children, False
    batch = w.batch([root], critic=False)
    algorithm, (logp, _) = PPO(), w.numbers()
    exact = torch.full((len(batch),), 0.7, dtype=torch.float64)
    for value_T, moves in ((exact, False), (exact + torch.linspace(0, 1, len(batch)), True)):
        new = Forward(w.pick(batch, logp), batch.old_logp_T, None, value_T)
        credit = algorithm.credit(batch, new)
        logp.grad = None
        algorithm.loss(batch, new, credit).total.backward()
        assert bool(credit.adv_P.any()) is moves and bool(logp.grad.any()) is moves


def test_siblings_have_no_order() -> None:
    w = world(3)
    trees = groups(w)
    before = update(w, PPO(), trees)
    for root in trees:
        for node in root.walk():
            node.children.reverse()
    same(before, update(w, PPO(), trees))


@pytest.mark.parametrize("breaks", ["fault", "reward"])
def test_faulted_and_unscored_episodes_are_not_there(breaks: str) -> None:
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
    for algorithm in (PPO(kl_coef=0.1), PPO(aggregation="seq-mean-token-mean")):
        same(update(w, algorithm, [root]), update(w, algorithm, [without]))
    batch = w.batch([root], critic=False)
    adv_A = PPO().action_advantage(batch, PPO().credit(batch, w.forward(batch, *w.numbers())))
    assert adv_A.isfinite().all() and not adv_A[4:6].any()


def test_a_batch_without_a_sampled_token() -> None:
    w = world(3)
    batch = w.batch([w.state(), w.state()], critic=False)
    logp, value = w.numbers()
    new = w.forward(batch, logp, value)
    loss = PPO().loss(batch, new, PPO().credit(batch, new))
    loss.total.backward()
    assert float(loss.total.detach()) == 0 and not logp.grad.any() and not value.grad.any()
    assert all(map(math.isfinite, loss.stats.values()))


@pytest.mark.parametrize("far", [1e3, -1e3, 1e30, -1e30])
def test_log_ratios_out_of_all_bounds(far: float) -> None:
    w = world(6)
    trees = [w.tree(), w.tree()]
    w.new = [old + far * (-1) ** i for i, old in enumerate(w.old)]
    loss, grad, _ = update(w, PPO(), trees)
    assert math.isfinite(loss) and grad.abs().max() <= 1e3


def test_what_it_asks_for_and_reports() -> None:
    w = world(9)
    batch = replace(w.batch(groups(w), critic=False), ref_logp_T=None)
    new = w.forward(batch, *w.numbers())
    assert PPO().needs == Needs(token_critic=True, replay=True, moments=True) and PPO(group=4).sampling.group == 4
    stats = PPO().loss(batch, new, PPO().credit(batch, new)).stats
    assert "kl" not in stats and stats["explained_variance"] <= 1 and stats["advantage_std"] > 0
    with pytest.raises(ValueError, match="separate critic"):
        PPO().credit(batch, replace(new, value_T=None))
    with pytest.raises(ValueError, match="ref_logp_T"):
        PPO(kl_coef=0.1).loss(batch, new, PPO().credit(batch, new))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": 0}, "group must be at least 1, not 0"),
        ({"discount": 1.5}, "discount must lie in 0..1, not 1.5"),
        ({"gae_lambda": -0.1}, "gae_lambda must lie in 0..1"),
        ({"std_floor": 0.1, "normalize": "none"}, "std_floor only works with normalize std, lift or whiten"),
        ({"clip_low": 1.5}, "clip_low must lie in 0..1"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1"),
        ({"value_clip": 0.0}, "value_clip must be above 0"),
        ({"value_coef": math.nan}, "value_coef must be above 0"),
        ({"aggregation": "mean"}, "Aggregation must be one of token-mean"),
    ],
)
def test_wrong_settings_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")) as raised:
        PPO(**wrong)
    assert "\n" not in str(raised.value)
