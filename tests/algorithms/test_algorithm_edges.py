"""What must never happen: NaN, noise taken for signal, a setting that is silently wrong. One test per rule."""

import math
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from algorithm_trees import World, states, world

import algorithms
from agent_envs import plugins
from agents.tree import Node
from agents.tree.packing import pack
from algorithms import ALGORITHMS, Algorithm, algorithm_class
from algorithms.arpo import ARPO
from algorithms.base import ForkPoint, Sampling
from algorithms.gigpo import GiGPO
from algorithms.grpo import GRPO
from algorithms.selfac import SelfAC
from algorithms.turn_ppo import TurnPPO

EVERY = [
    SelfAC(),
    SelfAC(literal=True, td_grad="residual", terminal_target="zero", ratio="token", kl_coef=0.1),
    SelfAC(backup="max", baseline="sibling_mean", ratio="turn_mean", normalize="whiten"),
    GRPO(kl_coef=0.1),
    GRPO(ratio="sequence", baseline="leave_one_out", scale="batch"),
    GRPO(ratio="sequence_mean", aggregation="seq-mean-token-sum-norm", scale="none", gate="soft"),
    GRPO(baseline="none", scale="tokens", discount=0.9),
    GRPO(gate="cispo", scale="tokens", drop_equal=True),
    ARPO(kl_coef=0.1),
    ARPO(advantage="hard", aggregation="seq-mean-token-mean"),
    GiGPO(kl_coef=0.1),
    GiGPO(norm="mean_std_norm", statistics="episodes", aggregation="seq-mean-token-mean"),
    TurnPPO(kl_coef=0.1),
    TurnPPO(ratio="token", normalize="std", value_clip=0.2),
]
each = pytest.mark.parametrize("algorithm", EVERY, ids=[f"{type(a).__name__}-{i}" for i, a in enumerate(EVERY)])


def step(w: World, algorithm: Algorithm[Any], trees: list[Node], **change: Any) -> tuple[float, torch.Tensor]:
    """Loss and the gradient of everything; asserts that all of it is finite."""
    logp, value = w.numbers()
    batch = replace(w.batch(trees), **change)
    new = w.forward(batch, logp, value)
    loss = algorithm.loss(batch, new, algorithm.credit(batch, new))
    loss.total.backward()
    grad = torch.cat([logp.grad, torch.zeros_like(value) if value.grad is None else value.grad])
    assert loss.total.isfinite() and grad.isfinite().all()
    assert all(math.isfinite(x) for x in loss.stats.values()), loss.stats
    return float(loss.total.detach()), grad


@each
def test_a_group_of_one(algorithm: Algorithm[Any]) -> None:
    w = world(0)
    chain = w.chain(3)
    _, grad = step(w, replace(algorithm, kl_coef=0.0), [chain])
    assert bool(grad.any()) is (algorithm.needs.critic or getattr(algorithm, "baseline", "") == "none")


@pytest.mark.parametrize("reward", [0.0, 0.1, 0.7, 1 / 3, 1e6])
@each
def test_equal_rewards_are_not_noise(algorithm: Algorithm[Any], reward: float) -> None:
    """Also in float32, in which a batch holds its rewards."""
    w = world(1)
    root = w.state()
    for _ in range(7):
        w.end(root.add(w.action(reward)).add(w.state()))
    batch = pack([root])
    _, grad = step(w, replace(algorithm, kl_coef=0.0), [root], return_L=batch.return_L, reward_A=batch.reward_A)
    if not algorithm.needs.critic:
        assert not grad.any()


@each
def test_truncated_episodes(algorithm: Algorithm[Any]) -> None:
    """Groups take the reward as it is; the critic goes on with V of the last state."""
    w = world(5)
    tree = w.tree()
    results = {}
    for ended in (True, False):
        for state in states(tree):
            state.terminated, state.truncated = (not state.children and x for x in (ended, not ended))
        results[ended] = step(w, algorithm, [tree])
    differs = algorithm.needs.critic and not getattr(algorithm, "literal", False)
    assert (results[True][0] != results[False][0]) is differs


@pytest.mark.parametrize("unscored", [math.nan, math.inf, -math.inf])
def test_an_unscored_episode_is_no_part_of_a_baseline(unscored: float) -> None:
    w = world(7)
    root = w.state()
    for _ in range(4):
        w.end(root.add(w.action()).add(w.state()))
    root.children[1].reward = unscored
    credit = GRPO().credit(w.batch([root]), None)
    others = [0, 2, 3]
    alone = GRPO().credit(w.batch([replace(root, children=[root.children[i] for i in others])]), None)
    assert torch.equal(credit.adv_L[others], alone.adv_L) and credit.adv_L[1] == 0


def test_success_is_never_the_sign_of_the_reward() -> None:
    """Neither algorithm reads the verdict, and rewards only count by their differences (GRPO)."""
    w = world(8)
    root = w.state()
    for reward in (0.01, 0.02, 0.05):
        w.end(root.add(w.action(reward)).add(w.state()))
    batch = w.batch([root])
    adv = GRPO().credit(batch, w.forward(batch, *w.numbers())).adv_L
    assert adv[0] < 0 < adv[2]
    assert torch.equal(adv, GRPO().credit(replace(batch, success_L=1 - batch.success_L), None).adv_L)


def test_float32_models_are_welcome() -> None:
    """Statistics are float64 whatever the model computes in; the gradient comes back in the model's type."""
    w = world(9)
    batch = pack([w.tree(), w.tree()], critic_prompt=(-1,))
    logp_T = (torch.randn(len(batch)) * (batch.action_T >= 0)).requires_grad_()
    value_S = torch.randn(len(batch.prev_S), requires_grad=True)
    new = algorithms.base.Forward(logp_T, torch.rand(len(batch)), value_S)
    for algorithm in (SelfAC(), GRPO(), GRPO(baseline="none", scale="tokens"), GiGPO(), TurnPPO()):
        loss = algorithm.loss(batch, new, algorithm.credit(batch, new))
        assert loss.total.dtype == torch.float64
        loss.total.backward()
    assert logp_T.grad.dtype == value_S.grad.dtype == torch.float32


def test_credit_has_no_graph() -> None:
    w = world(10)
    batch = w.batch([w.tree()])
    new = w.forward(batch, *w.numbers())
    for algorithm in (SelfAC(freeze_adv=True), GRPO(), GRPO(baseline="none", scale="none"), GiGPO(), TurnPPO()):
        credit = algorithm.credit(batch, new)
        tensors = [x for x in (getattr(credit, f.name) for f in fields(credit)) if isinstance(x, torch.Tensor)]
        assert tensors and not any(x.requires_grad for x in tensors)


# -- asking for what is not there --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        (SelfAC, {"alpha": 1.5}, "alpha must lie in 0..1, not 1.5"),
        (SelfAC, {"discount": -0.1}, "discount must lie in 0..1"),
        (SelfAC, {"gae_lambda": 2.0}, "gae_lambda must lie in 0..1"),
        (SelfAC, {"td_max": 0}, "td_max must be at least 1, not 0"),
        (SelfAC, {"clip": 0.0}, "clip must lie between 0 and 1"),
        (SelfAC, {"dual_clip": 1.0}, "dual_clip must be above 1"),
        (SelfAC, {"value_clip": 0.0}, "value_clip must be above 0"),
        (SelfAC, {"kl_coef": -1.0}, "kl_coef must not be negative"),
        (SelfAC, {"group": 0}, "group must be at least 1"),
        (SelfAC, {"ratio": "sequence"}, "TurnRatio must be one of turn, turn_mean, token, not 'sequence'"),
        (SelfAC, {"alpha": math.nan}, "alpha must lie in 0..1, not nan"),
        (SelfAC, {"std_floor": -0.1}, "std_floor must not be negative, but is -0.1"),
        (SelfAC, {"std_floor": 0.1, "normalize": "none"}, "std_floor only works with normalize std, lift or whiten"),
        (GRPO, {"group": 1}, "group must be at least 2"),
        (GRPO, {"std_eps": -1e-6}, "std_eps must not be negative"),
        (GRPO, {"length_norm": 0.0}, "length_norm must be above 0"),
        (GRPO, {"clip_low": 1.1}, "clip_low must lie in 0..1"),
        (GRPO, {"clip_high": -0.1}, "clip_high must not be negative"),
        (GRPO, {"dual_clip": 0.5}, "dual_clip must be above 1"),
        (GRPO, {"tau_plus": 0.0}, "tau_plus must be above 0"),
        (GRPO, {"tau_minus": -1.0}, "tau_minus must be above 0"),
        (GRPO, {"kl_coef": math.nan}, "kl_coef must not be negative"),
        (GRPO, {"kl": "k4"}, "KL must be one of k1, k2, k3"),
        (GRPO, {"aggregation": "mean"}, "Aggregation must be one of token-mean"),
    ],
)
def test_wrong_settings_say_so_in_one_line(kind: type, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")) as raised:
        kind(**wrong)
    assert "\n" not in str(raised.value)


def test_missing_values_and_references_are_named() -> None:
    w = world(11)
    batch = replace(w.batch([w.tree()]), ref_logp_T=None)
    new = w.forward(batch, *w.numbers())
    with pytest.raises(ValueError, match="ref_logp_T"):
        GRPO(kl_coef=0.1).loss(batch, new, GRPO(kl_coef=0.1).credit(batch, new))
    with pytest.raises(ValueError, match="critic prompt"):
        SelfAC().credit(batch, replace(new, value_S=None))
    assert "kl" not in GRPO().loss(batch, new, GRPO().credit(batch, new)).stats


def test_what_the_rollout_is_told() -> None:
    assert SelfAC().sampling == Sampling(group=1) and GRPO(group=4).sampling == Sampling(group=4)
    fork = ForkPoint(entropy=(9.0,) * 20, first_entropy=(0.0,) * 20, live=1, made=1, left=7, calls=1)
    for name, kind in ALGORITHMS.items():
        assert algorithm_class(name) is kind
        assert (kind().branch(fork, world(0).rng) > 0) == (kind().sampling.initial is not None)
        assert not kind().needs.reference
        assert not hasattr(kind, "kl_coef") or kind(kl_coef=0.1).needs.reference  # type: ignore[call-arg]
    assert (SelfAC().needs.critic, GRPO().needs.critic) == (True, False)
    assert not SelfAC().needs.judge and not GRPO().needs.judge


def test_every_setting_is_documented() -> None:
    """A docstring under each field, which the command line shows."""
    from inspect import getsource

    for kind in ALGORITHMS.values():
        lines = [line for part in kind.__mro__ if is_dataclass(part) for line in getsource(part).splitlines()]
        for f in fields(kind):
            at = next(i for i, line in enumerate(lines) if line.startswith(f"    {f.name}: "))
            assert lines[at + 1].startswith('    """'), f"{kind.__name__}.{f.name}"


def test_unknown_algorithms_are_answered_with_the_closest() -> None:
    names = ", ".join(sorted(ALGORITHMS))
    with pytest.raises(ValueError, match=rf"unknown algorithm 'gpro'; there are {names}; did you mean grpo\?"):
        algorithm_class("gpro")


def test_outside_packages_add_algorithms_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "algorithms.grpo:GRPO", algorithms.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "installed", lambda group: [point] if group == algorithms.ENTRY_POINTS else [])
    assert algorithm_class("mine") is GRPO
    with pytest.raises(ValueError, match=f"there are {', '.join(sorted([*ALGORITHMS, 'mine']))}"):
        algorithm_class("yours")


def test_importing_the_algorithms_brings_no_model_and_no_environment() -> None:
    code = (
        "import algorithms, sys; dict(algorithms.ALGORITHMS)\n"
        "named = [m for m in ('transformers', 'peft') if m in sys.modules]\n"
        "print(named + [m for m in sys.modules if m.startswith('agent_envs.') and m.count('.') > 1])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert out.stdout.strip() == "[]"
