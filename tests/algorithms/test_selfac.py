"""Self-AC against slow transcriptions of the slides (chains) and of the tree recursion, and its promises."""

import math
from dataclasses import replace
from statistics import variance
from typing import Any

import pytest
import torch
from algorithm_trees import World, actions, states, world
from torch import Tensor
from turn_loss_by_loop import centre

from agents.tree import Batch, Kind, Node
from algorithms.base import Loss
from algorithms.formulas.returns import scored
from algorithms.formulas.turn_ratio import TurnRatio
from algorithms.selfac import SelfAC, TurnCredit


def update(w: World, algorithm: SelfAC, trees: list[Node]) -> tuple[Loss, Tensor, Tensor]:
    """The loss, and its gradients with respect to every token's log-probability and every token's value."""
    logp, value = w.numbers()
    batch = w.batch(trees)
    new = w.forward(batch, logp, value)
    loss = algorithm.loss(batch, new, algorithm.credit(batch, new))
    loss.total.backward()
    return loss, logp.grad, torch.zeros_like(value) if value.grad is None else value.grad


def same(ours: tuple[Loss, Tensor, Tensor], theirs: tuple[Loss, Tensor, Tensor]) -> None:
    assert ours[0].total.item() == pytest.approx(theirs[0].total.item(), abs=1e-12)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-12, rtol=1e-10)


# -- the slides, episode by episode ------------------------------------------------------------------------------


def slides(w: World, algorithm: SelfAC, chains: list[Node]) -> tuple[float, Tensor, Tensor]:
    """The slides' vectors over n + 1 states with the shift that fills zeros; means instead of sums over padding."""
    logp, value = w.numbers()
    old = torch.tensor(w.old, dtype=torch.float64)
    critic, policy, lam = [], [], algorithm.discount
    for root in chains:
        turns, places = actions(root), [s.tokens[-1] for s in states(root)]
        v, n = value[places], len(turns)
        r = torch.tensor([a.reward for a in turns] + [0.0], dtype=torch.float64)

        def shift(x: Tensor, j: int) -> Tensor:
            return torch.cat([x[j:], x.new_zeros(min(j, len(x)))])

        for m in range(1, algorithm.td_max + 1):
            target = sum(lam**j * shift(r, j) for j in range(m)) + lam**m * shift(v, m)
            target = target if algorithm.td_grad == "residual" else target.detach()
            critic += [(v - target).square() / algorithm.td_max]
        returns = torch.zeros(n + 1, dtype=torch.float64)
        for k in reversed(range(n)):
            returns[k] = r[k] + lam * returns[k + 1]
        for k, action in enumerate(turns):
            adv = (returns[k] - v[k]).item()
            rho = torch.exp(sum(logp[t] for t in action.tokens) - sum(old[t] for t in action.tokens))
            policy.append(torch.minimum(rho * adv, rho.clamp(1 - algorithm.clip, 1 + algorithm.clip) * adv))
    entries = sum(len(states(root)) for root in chains)
    total = algorithm.alpha * torch.cat(critic).sum() / entries - (1 - algorithm.alpha) * torch.stack(policy).mean()
    total.backward()
    return float(total.detach()), logp.grad, value.grad


@pytest.mark.parametrize("gradient", ["detach", "residual"])
def test_literal_is_the_slides(gradient: str) -> None:
    for seed in range(4):
        w = world(seed)
        chains = [w.chain(turns) for turns in (1, 2, 7, 4)]
        algorithm = SelfAC(
            **{"literal": True, "terminal_target": "zero", "td_grad": gradient, "normalize": "none"},
            dual_clip=math.inf,
            discount=0.9,
            alpha=0.3,
        )
        loss, *gradients = update(w, algorithm, chains)
        expected, *expected_gradients = slides(w, algorithm, chains)
        assert loss.total.item() == pytest.approx(expected, abs=1e-12)
        for ours, theirs in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)


# -- the recursion on trees, node by node ------------------------------------------------------------------------


class Slow:
    """Every quantity of Self-AC by recursion over the nodes themselves."""

    def __init__(self, w: World, algorithm: SelfAC, value: Tensor) -> None:
        self.a, self.value = algorithm, value
        self.gae_lambda = 1.0 if algorithm.gae_lambda is None else algorithm.gae_lambda

    def follow(self, roots: list[Node]) -> None:
        """0.9 where the values explain a tenth of the returns, if lambda follows the critic."""
        if self.a.gae_lambda is not None:
            return
        taken = [(s, a) for root in roots for s in states(root) for a in s.children for _ in range(a.count)]
        left = [float(self.gae(s, a)) for s, a in taken]
        returns = [x + float(self.v(s).detach()) for x, (s, _) in zip(left, taken, strict=True)]
        self.gae_lambda = 0.9 if variance(left) <= 0.9 * variance(returns) else 1.0

    def v(self, state: Node) -> Tensor:
        return self.value[state.tokens[-1]]

    def end(self, state: Node) -> Tensor:
        return torch.zeros(()).double() if state.terminated else self.v(state).detach()

    def back(self, state: Node, worth: list[Tensor]) -> Tensor:
        if self.a.backup == "max":
            return torch.stack(worth).max()
        counts = [action.count for action in state.children]
        return sum(c * x for c, x in zip(counts, worth, strict=True)) / sum(counts)

    def target(self, state: Node, m: int) -> Tensor:
        if m == 0 and state.children:
            return self.v(state)
        if not state.children:
            return self.end(state)
        worth = [a.reward + self.a.discount * self.target(a.children[0], m - 1) for a in state.children]
        return self.back(state, worth)

    def adv(self, state: Node, action: Node) -> Tensor:
        """GAE of one action, minus the mean of its siblings' where that is the baseline."""
        adv = self.gae(state, action)
        if self.a.baseline == "sibling_mean":
            counts = [a.count for a in state.children]
            mean = sum(c * self.gae(state, a) for c, a in zip(counts, state.children, strict=True)) / sum(counts)
            adv = adv - mean
        return adv

    def gae(self, state: Node, action: Node) -> Tensor:
        after = action.children[0]
        following = self.v(after) if after.children else self.end(after)
        delta = action.reward + self.a.discount * following.detach() - self.v(state).detach()
        if not after.children:
            return delta
        rest = self.back(after, [self.gae(after, a) for a in after.children])
        return delta + self.a.discount * self.gae_lambda * rest

    def critic(self, roots: list[Node]) -> Tensor:
        errors, weights = [], []
        for state in (s for root in roots for s in states(root)):
            if state.children:
                for m in range(1, self.a.td_max + 1):
                    target = self.target(state, m)
                    target = target if self.a.td_grad == "residual" else target.detach()
                    errors.append((self.v(state) - target).square() / self.a.td_max)
                    weights.append(sum(a.count for a in state.children))
        n = sum(weights) / self.a.td_max
        for action in (a for root in roots for a in actions(root)):
            after = action.children[0]
            if not after.children and self.a.terminal_target != "none" and after.terminated:
                outcome = action.reward if self.a.terminal_target == "outcome" else 0.0
                errors.append((self.v(after) - outcome).square())
                weights.append(action.count)
                n += action.count
        return sum(w * e for w, e in zip(weights, errors, strict=True)) / n

    def policy(self, roots: list[Node], logp: Tensor, old: Tensor) -> Tensor:
        taken = [(s, a) for root in roots for s in states(root) for a in s.children]
        adv = [self.adv(s, a).item() for s, a in taken]
        if self.a.normalize != "none":
            each = [x for x, (_, a) in zip(adv, taken, strict=True) for _ in range(a.count)]
            every = torch.tensor(each, dtype=torch.float64)
            shift = centre(self.a, float(every.mean()))
            adv = [(x - shift) / math.sqrt(float(every.var()) + 1e-8) for x in adv]
        total, n = torch.zeros(()).double(), sum(a.count for _, a in taken)
        for x, (_, action) in zip(adv, taken, strict=True):
            gaps = torch.stack([logp[t] - old[t] for t in action.tokens])
            if self.a.ratio == "turn":
                gaps = gaps.sum()[None]
            elif self.a.ratio == "turn_mean":
                gaps = gaps.mean()[None]
            rho = gaps.clamp(-20, 20).exp()
            gain = torch.minimum(rho * x, rho.clamp(1 - self.a.clip, 1 + self.a.clip) * x)
            if x < 0:
                gain = gain.clamp_min(self.a.dual_clip * x)
            total = total - action.count * gain.mean() / n
        return total


OPTIONS: list[dict[str, Any]] = [
    {},
    {"terminal_target": "none"},
    {"terminal_target": "zero", "discount": 0.9},
    {"td_grad": "residual", "discount": 0.8, "td_max": 3},
    {"td_grad": "residual", "terminal_target": "zero"},
    {"backup": "max"},
    {"backup": "max", "td_grad": "residual", "gae_lambda": 0.5},
    {"baseline": "sibling_mean"},
    {"baseline": "sibling_mean", "gae_lambda": 0.9, "discount": 0.95},
    {"gae_lambda": 0.0},
    {"normalize": "none", "ratio": "turn_mean", "clip": 0.01},
    {"normalize": "whiten", "ratio": "token", "dual_clip": 1.5},
    {"normalize": "lift", "gae_lambda": 0.9},
    {"dual_clip": math.inf, "alpha": 0.1},
]


def teach(w: World, roots: list[Node], algorithm: SelfAC) -> None:
    """Values that are nearly the mean returns of their states."""
    slow = Slow(w, replace(algorithm, gae_lambda=1.0, baseline="value"), torch.tensor(w.value, dtype=torch.float64))
    for state in (s for root in roots for s in states(root) if s.children):
        left = [float(slow.gae(state, action)) for action in state.children for _ in range(action.count)]
        w.value[state.tokens[-1]] += sum(left) / len(left) + w.rng.gauss(0, 0.1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_trees_follow_the_recursion(options: dict[str, Any]) -> None:
    """Two critics that know nothing, and a third that does."""
    lambdas = []
    for seed in range(3):
        w = world(seed, gap=0.5)
        trees = [w.tree(), w.tree(), w.chain(3)]
        for action in actions(trees[0]):
            action.count = w.rng.randint(1, 3)
        algorithm = SelfAC(**options)
        if seed == 2:
            teach(w, trees, algorithm)
        loss, logp_grad, value_grad = update(w, algorithm, trees)

        logp, value = w.numbers()
        slow = Slow(w, algorithm, value)
        slow.follow(trees)
        lambdas.append(slow.gae_lambda)
        total = algorithm.alpha * slow.critic(trees)
        total = total + (1 - algorithm.alpha) * slow.policy(trees, logp, torch.tensor(w.old, dtype=torch.float64))
        total.backward()
        assert loss.total.item() == pytest.approx(total.item(), abs=1e-12)
        torch.testing.assert_close(logp_grad, logp.grad, atol=1e-12, rtol=1e-10)
        torch.testing.assert_close(value_grad, value.grad, atol=1e-12, rtol=1e-10)
        assert logp_grad.any() and value_grad.any()
    fixed = options.get("gae_lambda")
    assert lambdas == ([1.0, 1.0, 0.9] if fixed is None else [fixed] * 3)


# -- promises ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", TurnRatio)
def test_at_ratio_one_the_gradient_is_reinforce(ratio: TurnRatio) -> None:
    """d loss / d log pi(t) = -A / turns for the whole turn's ratio, divided by the turn's length for the others."""
    w = world(1)
    trees = [w.chain(3), w.tree()]
    algorithm = SelfAC(alpha=0, ratio=ratio, normalize="none")
    batch = w.batch(trees)
    logp, value = w.numbers(same=True)
    new = w.forward(batch, logp, value)
    algorithm.loss(batch, new, algorithm.credit(batch, new)).total.backward()
    adv_A = algorithm.advantage(scored(batch), new.value_S.detach())
    expected = torch.zeros_like(logp)
    for action, adv in zip([a for root in trees for a in actions(root)], adv_A, strict=True):
        expected[list(action.tokens)] = -adv / len(adv_A) / (1 if ratio == "turn" else len(action.tokens))
    torch.testing.assert_close(logp.grad, expected)


def test_one_step_is_reinforce_with_a_learned_baseline() -> None:
    root = Node(Kind.STATE, (0,))
    root.add(Node(Kind.ACTION, (1, 2), reward=1.0)).add(Node(Kind.STATE, (3,), terminated=True))
    w = world(0)
    w.text(4)
    w.new, w.value = list(w.old), [0.25, 0, 0, 0.5]
    loss, logp_grad, value_grad = update(w, SelfAC(), [root])
    # A = 1 - 0.25; V_0 regresses to 1, V_1 to the outcome 1; the mean is over these two.
    assert loss.total.item() == pytest.approx(0.5 * (0.75**2 + 0.5**2) / 2 - 0.5 * 0.75)
    assert logp_grad.tolist() == pytest.approx([0, -0.375, -0.375, 0])
    assert value_grad.tolist() == pytest.approx([-0.375, 0, 0, -0.25])
    assert loss.stats["policy"] == pytest.approx(-0.75)


def test_terminated_is_not_truncated() -> None:
    """The return of a truncated episode goes on with V of its last state; that state has no target of its own."""
    w = world(2)
    root = w.chain(2)
    last = states(root)[-1]
    algorithm = SelfAC(normalize="none", discount=0.5)
    adv = {}
    for ended in (True, False):
        last.terminated, last.truncated = ended, not ended
        batch = w.batch([root])
        value_S = w.forward(batch, *w.numbers()).value_S.detach()
        adv[ended] = algorithm.advantage(scored(batch), value_S)
        _, _, value_grad = update(w, algorithm, [root])
        assert bool(value_grad[last.tokens[-1]]) is ended
    torch.testing.assert_close(adv[False] - adv[True], value_S[-1] * torch.tensor([0.25, 0.5], dtype=torch.float64))


def test_a_count_is_that_many_episodes() -> None:
    for options in OPTIONS:
        w = world(3)
        root, other = w.chain(3), w.tree()
        for action in actions(root):
            action.count = 3
        single = replace_counts(root)
        same(
            update(w, SelfAC(**options), [root, other]),
            update(w, SelfAC(**options), [single, single, single, other]),
        )


def replace_counts(state: Node) -> Node:
    """The same chain, sampled once."""
    return replace(state, count=1, children=[replace_counts(child) for child in state.children])


def test_faulted_episodes_are_not_there() -> None:
    """Bit for bit: the gradients are those of the batch without them."""
    for options in OPTIONS:
        w = world(5)
        broken, fine, tree = w.chain(3), w.chain(2), w.tree()
        states(broken)[-1].fault = "the page server died"
        ours, clean = update(w, SelfAC(**options), [broken, fine, tree]), update(w, SelfAC(**options), [fine, tree])
        assert torch.equal(ours[1], clean[1]) and torch.equal(ours[2], clean[2])


def test_a_fault_in_a_tree_takes_only_its_own_turns() -> None:
    w = world(6)
    root = w.state()
    shared = root.add(w.action(count=3)).add(w.state())
    for _ in range(3):
        w.end(shared.add(w.action()).add(w.state()))
    dead = root.add(w.action()).add(w.state())
    w.end(dead.add(w.action()).add(w.state()))

    without = replace(root, children=[])
    kept = without.add(replace(root.children[0], count=2, children=[]))
    kept.add(replace(shared, children=shared.children[:2]))
    shared.children[2].children[0].fault = dead.children[0].children[0].fault = "timeout"
    for options in OPTIONS:
        ours, clean = update(w, SelfAC(**options), [root]), update(w, SelfAC(**options), [without])
        assert torch.equal(ours[1], clean[1]) and torch.equal(ours[2], clean[2])


def test_a_fault_in_a_search_leaves_the_turn_that_led_to_it() -> None:
    """One turn, then three tries of which one broke: the turn still counts once, the tries twice."""
    w = world(7)
    root = w.state()
    after = root.add(w.action()).add(w.state())
    for _ in range(3):
        w.end(after.add(w.action()).add(w.state()))
    after.children[1].children[0].fault = "timeout"
    assert scored(w.batch([root])).count_A.tolist() == [1, 1, 0, 1]


def test_advantages_follow_the_values_unless_frozen() -> None:
    w = world(8)
    batch = w.batch([w.chain(3)])
    logp, value = w.numbers()
    old = w.forward(batch, logp, value)
    moved = w.forward(batch, logp, value * 2)
    for freeze in (True, False):
        algorithm = SelfAC(alpha=0, freeze_adv=freeze, normalize="none")
        credit = algorithm.credit(batch, old)
        before, after = (algorithm.loss(batch, new, credit).total.item() for new in (old, moved))
        assert (before == after) is freeze


def test_value_clip() -> None:
    """max of the squared errors with and without the clip: a value that ran past it towards the target stops."""
    root = Node(Kind.STATE, (0,))
    root.add(Node(Kind.ACTION, (1,), reward=1.0)).add(Node(Kind.STATE, (2,), truncated=True))
    w = world(0)
    w.text(3)
    batch = w.batch([root])
    algorithm = SelfAC(alpha=1, discount=0, value_clip=0.2)
    credit = TurnCredit(torch.zeros(2, dtype=torch.float64), None)
    for value, loss, slope in ((0.5, 0.64, 0.0), (0.1, 0.81, -1.8), (-0.5, 2.25, -3.0)):
        value_S = torch.tensor([value, 0.0], dtype=torch.float64, requires_grad=True)
        new = replace(w.forward(batch, *w.numbers()), value_S=value_S)
        total = algorithm.loss(batch, new, credit).total
        total.backward()
        assert total.item() == pytest.approx(loss) and value_S.grad[0].item() == pytest.approx(slope)


def test_kl_is_a_mean_over_tokens() -> None:
    w = world(9)
    trees = [w.chain(2), w.tree()]
    for action in actions(trees[0]):
        action.count = 2
    off, on = SelfAC(), SelfAC(kl_coef=0.7, kl="k2")
    assert on.needs.reference and not off.needs.reference
    difference = update(w, on, trees)[0].total - update(w, off, trees)[0].total
    x = [(w.new[t] - w.ref[t]) ** 2 / 2 for root in trees for a in actions(root) for t in a.tokens * a.count]
    assert difference.item() == pytest.approx(0.7 * sum(x) / len(x))


def test_stats() -> None:
    w = world(10)
    trees = [w.chain(4), w.chain(2)]
    batch: Batch = w.batch(trees)
    new = w.forward(batch, *w.numbers())
    algorithm = SelfAC(clip=0.05)
    credit = algorithm.credit(batch, new)
    stats = algorithm.loss(batch, new, credit).stats
    value = new.value_S.detach()[batch.state_A]
    adv = algorithm.advantage(scored(batch), new.value_S.detach(), credit.gae_lambda)
    whole = algorithm.advantage(scored(batch), new.value_S.detach(), 1.0)
    assert stats["value"] == pytest.approx(float(value.mean()))
    assert stats["advantage_std"] == pytest.approx(float(adv.std()))
    assert stats["explained_variance"] == pytest.approx(float(1 - whole.var() / (whole + value).var()))
    rho = batch.per_action(new.logp_T - batch.old_logp_T).exp()
    shut = ((adv > 0) & (rho > 1.05)) | ((adv < 0) & ((rho < 0.95) | (rho > 3)))
    assert stats["clip_fraction"] == pytest.approx(float(shut.double().mean()))
    assert all(type(x) is float for x in stats.values())


def test_literal_has_no_tree_to_search_or_to_compare_in() -> None:
    assert SelfAC().needs.search and not SelfAC(literal=True).needs.search
    for options in ({"backup": "max"}, {"baseline": "sibling_mean"}):
        SelfAC(**options)
        with pytest.raises(ValueError, match="a sequence of its own"):
            SelfAC(literal=True, **options)
