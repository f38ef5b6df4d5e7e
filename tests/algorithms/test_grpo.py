"""GRPO against a loop over padded-free episodes, written down from the papers, and its promises on shared trees."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from algorithm_trees import World, actions, counted, paths, unshared, world
from torch import Tensor

from agents.tree import Kind, Node
from algorithms.formulas.groups import Aggregation, overlong_penalty
from algorithms.formulas.maths import KL
from algorithms.grpo import GRPO, Gate, Ratio

MODES = list(product(Ratio, Aggregation))


def groups(w: World, trees: int = 3) -> list[Node]:
    """Trees whose episodes share what they have in common, some of them sampled more than once."""
    return [counted(w, w.tree()) for _ in range(trees)]


def gradient(w: World, algorithm: GRPO, trees: list[Node], **change: Any) -> tuple[float, Tensor]:
    """The loss, and its gradient with respect to the log-probability of every token there is."""
    logp, value = w.numbers()
    batch = replace(w.batch(trees, critic=False), **change)
    new = w.forward(batch, logp, value)
    total = algorithm.loss(batch, new, algorithm.credit(batch, new)).total
    total.backward()
    return float(total.detach()), logp.grad


def by_loop(w: World, algorithm: GRPO, trees: list[Node]) -> tuple[float, Tensor]:
    """The objective as printed, episode by episode and token by token, without any sharing."""
    rows: list[tuple[list[int], list[float]]] = []
    if algorithm.baseline == "none":
        return loop_loss(w, algorithm, to_go(algorithm, trees))
    for root in trees:
        episodes = [path for path in paths(root) for _ in range(path[-1][0].count)]
        returns = [sum(action.reward for action, _ in path) for path in episodes]
        n, mean = len(returns), sum(returns) / len(returns)
        std = math.sqrt(sum((r - mean) ** 2 for r in returns) / (n - 1)) if n > 1 else 0.0
        for path, r in zip(episodes, returns, strict=True):
            adv = r - mean
            if algorithm.baseline == "leave_one_out" and n > 1:
                adv = r - (sum(returns) - r) / (n - 1)
            if algorithm.scale == "group":
                adv = adv / (std + algorithm.std_eps)
            tokens = [t for action, _ in path for t in action.tokens]
            if not algorithm.drop_equal or std:
                rows.append((tokens, [adv if n > 1 and std else 0.0] * len(tokens)))
    if algorithm.scale == "tokens":
        rows = white(rows, lone=True)
    return loop_loss(w, algorithm, rows)


def to_go(algorithm: GRPO, trees: list[Node]) -> list[tuple[list[int], list[float]]]:
    """The tokens of every episode, each with what the episode paid from its turn on, discounted by turns."""
    rows = []
    for root in trees:
        for path in (p for p in paths(root) for _ in range(p[-1][0].count)):
            rest, tokens, adv = 0.0, [], []
            for action, _ in reversed(path):
                rest = action.reward + algorithm.discount * rest
                tokens, adv = [*action.tokens, *tokens], [rest] * len(action.tokens) + adv
            rows.append((tokens, adv))
    return white(rows) if algorithm.scale == "tokens" else rows


def white(rows: list[tuple[list[int], list[float]]], lone: bool = False) -> list[tuple[list[int], list[float]]]:
    """Centred and scaled over all tokens; what was exactly 0 for want of a group stays 0 if ``lone``."""
    seen = torch.tensor([x for _, adv in rows for x in adv], dtype=torch.float64)
    mean, std = seen.mean(), (seen.var() + 1e-8).sqrt()
    return [(tokens, [0.0 if lone and x == 0 else float((x - mean) / std) for x in adv]) for tokens, adv in rows]


def loop_loss(w: World, algorithm: GRPO, rows: list[tuple[list[int], list[float]]]) -> tuple[float, Tensor]:
    """Of episodes given as their tokens and the advantage of each."""
    logp, _ = w.numbers()
    old, ref = (torch.tensor(x, dtype=torch.float64) for x in (w.old, w.ref))
    total = torch.zeros((), dtype=torch.float64)
    mode = algorithm.aggregation
    if mode is None:
        mode = "token-mean" if algorithm.ratio == "token" else "seq-mean-token-mean"
    all_tokens = sum(len(tokens) for tokens, _ in rows)
    for tokens, advs in rows:
        gaps = [torch.clamp(logp[t] - old[t], -20, 20) for t in tokens]
        whole = sum(logp[t] - old[t] for t in tokens)
        if algorithm.ratio == "sequence_mean":
            whole = whole / len(tokens)
        losses = []
        for t, gap, adv in zip(tokens, gaps, advs, strict=True):
            rho = torch.exp(gap if algorithm.ratio == "token" else torch.clamp(whole, -20, 20))
            if algorithm.gate == "soft":
                tau = algorithm.tau_plus if adv > 0 else algorithm.tau_minus
                gain = torch.sigmoid(tau * (rho - 1)) * 4 / tau * adv
            elif algorithm.gate == "cispo":
                gain = rho.detach().clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high) * adv * logp[t]
            else:
                gain = torch.minimum(rho * adv, rho.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high) * adv)
                if adv < 0:
                    gain = torch.maximum(gain, torch.tensor(algorithm.dual_clip * adv, dtype=torch.float64))
            x = logp[t] - ref[t]
            kl = {"k1": x, "k2": x**2 / 2, "k3": torch.exp(-x) + x - 1, "abs": abs(x)}[algorithm.kl]
            if algorithm.kl_unbiased:
                kl = kl * torch.exp(gap)
            losses.append(-gain + algorithm.kl_coef * kl)
        summed = torch.stack(losses).sum()
        total = (
            total
            + {
                "token-mean": summed / all_tokens,
                "token-sum": summed,
                "seq-mean-token-sum": summed / len(rows),
                "seq-mean-token-sum-norm": summed / len(rows) / algorithm.length_norm,
                "seq-mean-token-mean": summed / len(rows) / len(tokens),
            }[mode]
        )
    total.backward()
    return float(total.detach()), logp.grad


def check(w: World, algorithm: GRPO, trees: list[Node]) -> None:
    loss, grad = gradient(w, algorithm, trees)
    expected_loss, expected_grad = by_loop(w, algorithm, trees)
    assert loss == pytest.approx(expected_loss, abs=1e-12)
    torch.testing.assert_close(grad, expected_grad, atol=1e-12, rtol=1e-10)
    assert grad.any()


@pytest.mark.parametrize(("ratio", "mode"), MODES)
def test_the_loss_is_the_printed_one(ratio: Ratio, mode: Aggregation) -> None:
    for seed in range(3):
        w = world(seed)
        check(w, GRPO(ratio=ratio, aggregation=mode, kl_coef=0.1), groups(w))


@pytest.mark.parametrize(
    "options",
    [
        {"baseline": "leave_one_out", "scale": "none", "ratio": "sequence"},
        {"scale": "none", "aggregation": "seq-mean-token-sum-norm", "length_norm": 7.0},
        {"ratio": "sequence_mean", "clip_low": 3e-4, "clip_high": 4e-4},
        {"clip_high": 0.28, "dual_clip": 1.4},
        {"dual_clip": math.inf},
        {"gate": "soft", "tau_plus": 0.7, "tau_minus": 1.3, "aggregation": "seq-mean-token-mean"},
        {"gate": "soft", "ratio": "sequence"},
        {"gate": "cispo", "clip_low": 1.0, "clip_high": 0.5},
        {"gate": "cispo", "aggregation": "seq-mean-token-mean", "clip_low": 0.1},
        {"gate": "cispo", "ratio": "sequence_mean"},
        {"baseline": "none", "scale": "tokens", "group": 1},
        {"baseline": "none", "scale": "tokens", "discount": 0.5, "aggregation": "seq-mean-token-mean"},
        {"baseline": "none", "scale": "none", "discount": 0.0, "dual_clip": 1.4},
        {"baseline": "none", "scale": "none", "gate": "soft"},
        {"scale": "tokens"},
        {"scale": "tokens", "baseline": "leave_one_out", "ratio": "sequence_mean"},
        {"clip_high": 0.28, "drop_equal": True},
        {"kl_coef": 0.5, "kl": "k1"},
        {"kl_coef": 0.5, "kl": "k2", "kl_unbiased": True},
        {"kl_coef": 0.5, "kl": "abs", "ratio": "sequence"},
    ],
)
def test_options(options: dict[str, Any]) -> None:
    for seed in range(3):
        w = world(seed, gap=0.6)
        check(w, GRPO(**options), groups(w))


@pytest.mark.parametrize(("ratio", "mode"), MODES)
@pytest.mark.parametrize("gate", [gate for gate in Gate if gate != Gate.GEOMETRIC])
def test_a_shared_tree_is_its_episodes(ratio: Ratio, mode: Aggregation, gate: Gate) -> None:
    """Sharing the forward changes nothing: loss and gradient are those of chains that share only the task."""
    for seed, kl in enumerate(KL):
        w = world(seed, gap=0.5)
        algorithm = GRPO(ratio=ratio, aggregation=mode, gate=gate, kl_coef=0.3, kl=kl, kl_unbiased=bool(seed % 2))
        trees = groups(w)
        shared, duplicated = gradient(w, algorithm, trees), gradient(w, algorithm, [unshared(t) for t in trees])
        assert shared[0] == pytest.approx(duplicated[0], abs=1e-12)
        torch.testing.assert_close(shared[1], duplicated[1], atol=1e-12, rtol=1e-10)


def test_one_mean_advantage_would_not_do() -> None:
    """The control for the test above: with the mean of its episodes' advantages a shared token learns otherwise."""
    w = world(1, gap=0.8)
    trees, algorithm = groups(w), GRPO()
    batch = w.batch(trees, critic=False)
    logp, value = w.numbers()
    new = w.forward(batch, logp, value)
    credit = algorithm.credit(batch, new)
    net = credit.plus + credit.minus
    hard = replace(credit, plus=net.clamp_min(0), minus=net.clamp_max(0))
    difference = algorithm.loss(batch, new, credit).total - algorithm.loss(batch, new, hard).total
    assert difference.abs() > 1e-3


@pytest.mark.parametrize("ratio", Ratio)
def test_at_ratio_one_the_gradient_is_reinforce(ratio: Ratio) -> None:
    """d loss / d log pi(t) = -weight * advantage, summed over the episodes that hold the token."""
    w = world(5)
    trees, algorithm = groups(w), GRPO(ratio=ratio, aggregation="seq-mean-token-mean")
    logp, value = w.numbers(same=True)
    batch = w.batch(trees, critic=False)
    new = w.forward(batch, logp, value)
    credit = algorithm.credit(batch, new)
    algorithm.loss(batch, new, credit).total.backward()
    expected = torch.zeros_like(logp)
    episodes = int(batch.count_L.sum())
    leaf = 0
    for root in trees:
        for path in paths(root):
            tokens = [t for action, _ in path for t in action.tokens]
            push = float(credit.adv_L[leaf]) * path[-1][0].count / episodes
            expected[tokens] -= push if ratio == "sequence" else push / len(tokens)
            leaf += 1
    torch.testing.assert_close(logp.grad, expected)


def test_tasks_are_not_mixed() -> None:
    """A group's advantages do not change when another task joins the batch, whatever that one pays."""
    w = world(4)
    first, second = groups(w, 2)
    for action in second.walk():
        action.reward *= 100
    alone, both = w.batch([first], critic=False), w.batch([first, second], critic=False)
    for baseline in ("mean", "leave_one_out"):
        algorithm = GRPO(baseline=baseline)
        adv = [algorithm.credit(b, w.forward(b, *w.numbers())).adv_L for b in (alone, both)]
        assert torch.equal(adv[0], adv[1][: len(adv[0])])


def test_batch_scale_divides_by_one_deviation() -> None:
    w = world(6)
    batch = w.batch(groups(w), critic=False)
    new = w.forward(batch, *w.numbers())
    plain = GRPO(scale="none").credit(batch, new).adv_L
    scaled = GRPO(scale="batch", std_eps=0.0).credit(batch, new).adv_L
    returns = torch.repeat_interleave(batch.return_L, batch.count_L)
    torch.testing.assert_close(scaled, plain / returns.std())


@pytest.mark.parametrize("ratio", Ratio)
def test_faulted_episodes_are_not_there(ratio: Ratio) -> None:
    """Bit for bit: the gradient is that of the batch without them."""
    for mode in Aggregation:
        w = world(7)
        root = w.state()
        for _ in range(5):
            w.end(root.add(w.action()).add(w.state()))
        other = w.tree()
        without = replace(root, children=root.children[:2] + root.children[3:])
        root.children[2].children[0].fault = "the sandbox died"
        algorithm = GRPO(ratio=ratio, aggregation=mode, kl_coef=0.1)
        with_fault, clean = gradient(w, algorithm, [root, other]), gradient(w, algorithm, [without, other])
        assert torch.equal(with_fault[1], clean[1])
        assert with_fault[0] == pytest.approx(clean[0], abs=1e-14)


def test_a_fault_below_a_shared_action_takes_its_share_away() -> None:
    w = world(8)
    root = w.state()
    shared = root.add(w.action()).add(w.state())
    for _ in range(3):
        w.end(shared.add(w.action()).add(w.state()))
    without = replace(root, children=[])
    kept = without.add(replace(root.children[0], children=[]))
    kept.add(replace(shared, children=shared.children[:2]))
    shared.children[2].children[0].fault = "timeout"
    algorithm = GRPO(kl_coef=0.1)
    with_fault, clean = gradient(w, algorithm, [root]), gradient(w, algorithm, [without])
    assert torch.equal(with_fault[1], clean[1]) and clean[1].any()


def test_clip_fraction_counts_tokens_at_both_ends() -> None:
    root = Node(Kind.STATE, (9,))
    for token, reward in ((0, 1.0), (1, 0.0), (2, 1.0), (3, 0.0)):
        root.add(Node(Kind.ACTION, (token,), reward=reward)).add(Node(Kind.STATE, ()))
    w = world(0)
    w.text(10)
    w.new = [old + gap for old, gap in zip(w.old, (0.5, 2.0, 0.1, 0.5, *[0] * 6), strict=True)]
    batch = w.batch([root], critic=False)
    new = w.forward(batch, *w.numbers())
    algorithm = GRPO()
    stats = algorithm.loss(batch, new, algorithm.credit(batch, new)).stats
    assert stats["clip_fraction"] == 0.5  # good at e^0.5 > 1.2, bad at e^2 > 3; not: good at e^0.1, bad at e^0.5
    assert stats["zero_groups"] == 0.0 and "kl" in stats


NEW = [
    {"gate": "cispo", "clip_low": 1.0},
    {"baseline": "none", "scale": "tokens", "discount": 0.9},
    {"baseline": "none", "scale": "none", "aggregation": "seq-mean-token-sum"},
    {"scale": "tokens", "aggregation": "seq-mean-token-mean"},
    {"drop_equal": True},
]


def with_a_dead_group(w: World) -> list[Node]:
    """Groups, and one of them whose episodes all paid the same."""
    dead = w.state()
    for _ in range(3):
        w.end(dead.add(w.action(0.7)).add(w.state()))
    return [*groups(w), dead]


@pytest.mark.parametrize("options", NEW)
def test_a_shared_tree_is_its_episodes_for_the_relatives(options: dict[str, Any]) -> None:
    for seed in range(4):
        w = world(seed, gap=0.5)
        algorithm, trees = GRPO(kl_coef=0.3, **options), with_a_dead_group(w)
        shared, duplicated = gradient(w, algorithm, trees), gradient(w, algorithm, [unshared(t) for t in trees])
        assert shared[0] == pytest.approx(duplicated[0], abs=1e-12)
        torch.testing.assert_close(shared[1], duplicated[1], atol=1e-12, rtol=1e-10)


def test_a_group_that_teaches_nothing_is_not_moved_by_the_others() -> None:
    """Centring over the batch would give a group of equal returns the batch's mean as a penalty: it has exactly 0."""
    w = world(5)
    trees = with_a_dead_group(w)
    _, grad = gradient(w, GRPO(scale="tokens"), trees)
    dead = [t for action in trees[-1].children for t in action.tokens]
    assert grad.any() and not grad[dead].any()


def test_dropped_groups_are_no_part_of_the_mean() -> None:
    """The loss is that of the batch without them; otherwise they count in the number of tokens."""
    w = world(6)
    trees = with_a_dead_group(w)
    dropped, alone = gradient(w, GRPO(drop_equal=True), trees), gradient(w, GRPO(), trees[:-1])
    assert dropped[0] == pytest.approx(alone[0], abs=1e-15) and torch.equal(dropped[1], alone[1])
    assert gradient(w, GRPO(), trees)[0] != pytest.approx(alone[0], abs=1e-6)


def test_without_a_baseline_a_turn_is_credited_with_the_rest_of_its_episodes() -> None:
    """Two episodes share their first turn, which paid 1; then one is paid 4 and the other nothing."""
    root = Node(Kind.STATE, (9,))
    fork = root.add(Node(Kind.ACTION, (0,), reward=1.0)).add(Node(Kind.STATE, ()))
    for token, reward in ((1, 4.0), (2, 0.0)):
        fork.add(Node(Kind.ACTION, (token,), reward=reward)).add(Node(Kind.STATE, ()))
    w = world(0)
    w.text(10)
    batch = w.batch([root], critic=False)
    algorithm = GRPO(baseline="none", scale="none", discount=0.5, aggregation="token-sum")
    credit = algorithm.credit(batch, w.forward(batch, *w.numbers()))
    assert algorithm.action_advantage(batch, credit).tolist() == [2.0, 4.0, 0.0]  # the mean of 1 + 2 and 1
    assert credit.plus[batch.action_T >= 0].tolist() == [4.0, 4.0, 0.0]
    assert credit.adv_L.tolist() == [3.5, 0.5]


def test_cispo_goes_on_teaching_where_the_clip_stops() -> None:
    root = Node(Kind.STATE, (9,))
    for token, reward in ((0, 1.0), (1, 0.0)):
        root.add(Node(Kind.ACTION, (token,), reward=reward)).add(Node(Kind.STATE, ()))
    w = world(0)
    w.text(10)
    w.new = [w.old[0] + 1.0, w.old[1] - 1.0, *w.old[2:]]  # both beyond the clip, on the side where it shuts
    options = {"scale": "none", "aggregation": "token-sum"}
    assert not gradient(w, GRPO(**options), [root])[1].any()
    _, grad = gradient(w, GRPO(gate="cispo", **options), [root])
    assert grad[:2].tolist() == pytest.approx([-0.5 * 1.2, 0.5 * 0.8])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            {"baseline": "none"},
            "baseline none compares nothing within a group: scale must be none or tokens, not group",
        ),
        ({"baseline": "none", "scale": "tokens", "drop_equal": True}, "drop_equal needs groups"),
        ({"baseline": "none", "scale": "none", "ratio": "sequence"}, "ratio must be token, not sequence"),
        ({"baseline": "none", "scale": "none", "group": 0}, "group must be at least 1, not 0"),
        ({"discount": 2.0}, "discount must lie in 0..1, not 2.0"),
        ({"gate": "hard"}, "Gate must be one of clip, soft, cispo, geometric, not 'hard'"),
    ],
)
def test_wrong_combinations_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")) as raised:
        GRPO(**wrong)
    assert "\n" not in str(raised.value)


def test_overlong_shaping_by_hand() -> None:
    """Up to 6 tokens nothing, at 8 a half, at 10 and more all of it [DAPO, equation 13]."""
    assert overlong_penalty(torch.tensor([3, 6, 8, 10, 40]), 10, 4).tolist() == [0, 0, -0.5, -1, -1]
    w = world(3)
    root = w.state()
    for n in (4, 8, 12):
        root.add(Node(Kind.ACTION, w.text(n), reward=1.0)).add(Node(Kind.STATE, w.text(1), terminated=True))
    batch = w.batch([root], critic=False)
    new = w.forward(batch, *w.numbers())
    shaped = GRPO(overlong_max=10, overlong_cache=4, scale="none").credit(batch, new)
    assert shaped.adv_L.tolist() == pytest.approx([0.5, 0.0, -0.5])
    assert not GRPO(scale="none").credit(batch, new).adv_L.any()


def test_the_divergence_as_a_cost_of_each_turn() -> None:
    """Without rewards a turn's return is minus the divergence of itself and of what follows; none is in the loss."""
    w = world(4, gap=0.4)
    root = w.chain(3)
    for action in actions(root):
        action.reward = 0.0
    batch = w.batch([root], critic=False)
    new = w.forward(batch, *w.numbers())
    algorithm = GRPO(group=1, baseline="none", scale="none", kl_coef=0.5, kl_in_reward=True)
    each_A = batch.per_action(batch.old_logp_T - batch.ref_logp_T)
    later_A = -0.5 * each_A.flip(0).cumsum(0).flip(0)
    credit = algorithm.credit(batch, new)
    torch.testing.assert_close(credit.adv_A, later_A)
    plain = replace(algorithm, kl_coef=0.0, kl_in_reward=False)
    torch.testing.assert_close(algorithm.loss(batch, new, credit).total, plain.loss(batch, new, credit).total)
    assert not plain.credit(batch, new).adv_A.any()


def test_a_geometric_mean_by_hand() -> None:
    """Two episodes of two tokens: clipped at 0.3 for the good one, at -0.2 for the bad one."""
    w = world(5)
    root = w.state()
    for paid in (3.0, -1.0):
        root.add(Node(Kind.ACTION, w.text(2), reward=paid)).add(Node(Kind.STATE, w.text(1), terminated=True))
    batch = w.batch([root], critic=False)
    gap = torch.zeros(len(batch), dtype=torch.float64)
    gap[batch.action_T >= 0] = torch.tensor([0.5, -0.4, 0.5, -0.4], dtype=torch.float64)
    new = replace(w.forward(batch, *w.numbers()), logp_T=batch.old_logp_T + gap)
    algorithm = GRPO(gate="geometric", ratio="sequence_mean", scale="none", clip_low=0.2, clip_high=0.3)
    loss = algorithm.loss(batch, new, algorithm.credit(batch, new))
    assert float(loss.total) == pytest.approx((-2 * math.exp((0.3 - 0.4) / 2) + 2 * math.exp((0.5 - 0.2) / 2)) / 2)
    assert loss.stats["clip_fraction"] == 0.5


def test_pass_at_k_training_credits_the_best_of_each_group() -> None:
    w = world(6)
    root = w.state()
    for paid in (1.0, 4.0, 2.0):
        root.add(Node(Kind.ACTION, w.text(2), reward=paid)).add(Node(Kind.STATE, w.text(1), terminated=True))
    batch = w.batch([root], critic=False)
    algorithm = GRPO(baseline="second_best", scale="none")
    assert algorithm.credit(batch, w.forward(batch, *w.numbers())).adv_L.tolist() == [0, 2, 0]
    length = GRPO(baseline="length", scale="none").credit(batch, w.forward(batch, *w.numbers()))
    assert length.adv_L.tolist() == pytest.approx([1 - 7 / 3, 4 - 7 / 3, 2 - 7 / 3])
    for wrong in ({"baseline": "second_best", "scale": "tokens"}, {"baseline": "length"}, {"gate": "geometric"}):
        with pytest.raises(ValueError, match="must be"):
            GRPO(**wrong)
    for wrong in (
        {"kl_in_reward": True},
        {"overlong_max": 5},
        {"baseline": "none", "scale": "none", "overlong_max": 5},
    ):
        with pytest.raises(ValueError, match=r"kl_in_reward takes|overlong_cache must"):
            GRPO(**wrong)
