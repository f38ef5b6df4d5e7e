"""Differences between engine and trainer: literal weights and statistics, and the gradient that comes of them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_trees import World, actions, counted, unshared, world
from every_algorithm import Step, differ, each, equal, groups, update, with_kl

from agents.tree import Batch, Kind, Node
from algorithms import Algorithm
from algorithms.formulas.mismatch import (
    Correction,
    corrected,
    correction_weight,
    importance_weight,
    mismatch_stats,
    sampling_warning,
    without_masked,
)
from algorithms.grpo import GRPO
from algorithms.selfac import SelfAC
from algorithms.turn_ppo import TurnPPO


def t(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def pair(ratios: list[list[float]]) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Episodes of one turn each whose tokens have these ratios: batch, the trainer's and the engine's log-probs."""
    w = world(0)
    root = w.state()
    for episode in ratios:
        root.add(Node(Kind.ACTION, w.text(len(episode)))).add(Node(Kind.STATE, ()))
    batch = w.batch([root])
    said = batch.action_T >= 0
    delta = torch.zeros(len(batch), dtype=torch.float64)
    delta[said] = t(*[math.log(r) for episode in ratios for r in episode])
    return batch, batch.old_logp_T + delta, batch.old_logp_T


def test_weights_by_hand() -> None:
    delta = t(*[math.log(r) for r in (0.25, 1.0, 1.5, 4.0)])
    assert importance_weight(delta, False, 0.5, 2.0).tolist() == pytest.approx([0.25, 1.0, 1.5, 2.0])
    assert importance_weight(delta, True, 0.5, 2.0).tolist() == pytest.approx([0.0, 1.0, 1.5, 0.0])
    assert importance_weight(t(1e6, -1e6), False, 0.0, math.inf).tolist() == pytest.approx(
        [math.exp(20), math.exp(-20)]
    )


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("none", [1, 1, 1, 1]),
        ("token_truncate", [2.0, 0.5, 1.5, 1.5]),
        ("token_mask", [0.0, 0.5, 1.5, 1.5]),
        ("sequence_truncate", [2.0, 2.0, 2.0, 2.0]),  # 4 * 0.5 and 1.5 * 1.5
        ("sequence_mask", [2.0, 2.0, 0.0, 0.0]),
    ],
)
def test_corrections_by_hand(how: Correction, expected: list[float]) -> None:
    batch, trainer, engine = pair([[4.0, 0.5], [1.5, 1.5]])
    weight_T = correction_weight(batch, trainer, engine, how, low=0.4, high=2.0 + 1e-12)
    assert weight_T[batch.action_T >= 0].tolist() == pytest.approx(expected)
    assert not weight_T[batch.action_T < 0].any()


@pytest.mark.parametrize("how", Correction)
def test_where_both_agree_nothing_is_corrected(how: Correction) -> None:
    w = world(1)
    batch = w.batch([counted(w, w.tree()) for _ in range(2)])
    weight_T = correction_weight(batch, batch.old_logp_T, batch.old_logp_T, how)
    assert torch.equal(weight_T, (batch.action_T >= 0).double())


def test_shared_tokens_have_the_mean_of_their_episodes() -> None:
    w = world(2)
    tree = counted(w, w.tree())
    batch, flat = w.batch([tree]), w.batch([unshared(tree)])
    shared_T, flat_T, token_T = (
        correction_weight(b, w.pick(b, t(*w.new)), b.old_logp_T, how)
        for b, how in ((batch, "sequence_truncate"), (flat, "sequence_truncate"), (batch, "token_truncate"))
    )
    for token in batch.token_T[batch.action_T >= 0].tolist():
        mine, theirs = (b.token_T == token for b in (batch, flat))
        assert float(shared_T[mine]) == pytest.approx(float(flat_T[theirs].mean()))
    assert not torch.allclose(token_T, shared_T)  # the control: these are not the tokens' own


@pytest.mark.parametrize("algorithm", [GRPO(), GRPO(gate="cispo"), SelfAC(ratio="token"), TurnPPO()])
def test_the_gradient_of_each_token_is_weighted(algorithm: GRPO | SelfAC | TurnPPO) -> None:
    """Any loss: the same number, each token's gradient times its weight, and the critic's as it was."""
    w = world(3)
    batch = w.batch([w.tree(), w.tree()])
    weight_T = torch.rand(len(batch), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grads, totals = [], []
    for weights in (torch.ones_like(weight_T), weight_T):
        logp, value = w.numbers()
        new = w.forward(batch, logp, value)
        total = algorithm.loss(batch, corrected(new, weights), algorithm.credit(batch, new)).total
        total.backward()
        totals.append(float(total.detach()))
        grads.append((logp.grad, value.grad))
    by_token = torch.ones_like(grads[0][0])
    by_token[batch.token_T[batch.action_T >= 0]] = weight_T[batch.action_T >= 0]
    torch.testing.assert_close(grads[1][0], grads[0][0] * by_token, atol=1e-14, rtol=1e-12)
    assert totals[0] == pytest.approx(totals[1], abs=1e-14) and not torch.equal(*[g[0] for g in grads])
    if algorithm.needs.critic:
        assert torch.equal(grads[0][1], grads[1][1])


def masked(w: World, tried: Algorithm[Any], trees: list[Node], out: set[int], how: str) -> Step:
    """One update in which the engine gave these tokens a hundred times the trainer's probability."""
    batch = w.batch(trees, critic=tried.needs.critic)
    far_T = torch.isin(batch.token_T, torch.tensor(sorted(out))) & (batch.action_T >= 0)
    trainer_T = batch.old_logp_T + 5.0 * far_T
    kept = without_masked(batch, trainer_T, batch.old_logp_T, Correction(how), 0.5, 2.0)
    return update(w, tried, trees, action_T=kept.action_T, fault_L=kept.fault_L)


@each
def test_masked_tokens_are_left_out_of_every_mean(algorithm: Algorithm[Any]) -> None:
    """As if they had not been sampled: the trees without them have the same loss and gradient."""
    w = world(8, gap=0.5)
    tried, trees = with_kl(algorithm), groups(w)
    if tried.needs.token_critic:
        return  # refused: each sampled token has a value of its own
    before = update(w, tried, trees)
    out = set()
    for action in (action for root in trees for action in actions(root)):
        if len(action.tokens) > 1:
            out.add(action.tokens[0])
    found = masked(w, tried, trees, out, "token_mask")
    assert differ(found, before)
    for action in (action for root in trees for action in actions(root)):
        action.tokens = tuple(x for x in action.tokens if x not in out)
    equal(found, update(w, tried, trees))
    assert out and not found[1][sorted(out)].any()


@each
def test_a_masked_turn_is_in_no_mean_of_the_policy(algorithm: Algorithm[Any]) -> None:
    """The control is the gradient of "counted", which shrinks with the share of what is masked."""
    w = world(9, gap=0.0)
    tried = algorithm
    if tried.needs.token_critic:
        return
    trees = groups(w)
    silent = actions(trees[0])[-1]
    step = masked(w, tried, trees, set(silent.tokens), "token_mask")
    assert not step[1][list(silent.tokens)].any() and step[1].any()


def test_a_third_masked_keeps_the_size_of_the_gradient() -> None:
    """Equal tokens of which one in three is masked: the mean over the others, and two thirds of it where they count."""
    batch, trainer, engine = pair([[1.0, 1.0, 9.0], [1.0, 1.0, 9.0]])
    batch = replace(batch, return_L=t(1, 0), old_logp_T=trainer)
    grads = []
    for kept in (batch, without_masked(batch, trainer, engine, Correction.TOKEN_MASK, 0.0, 2.0)):
        logp_T = trainer.clone().requires_grad_()
        new = world(0).forward(batch, torch.zeros(99), torch.zeros(99))
        new = replace(new, logp_T=logp_T, value_S=None, value_T=None, entropy_T=torch.zeros_like(logp_T))
        weight_T = correction_weight(batch, trainer, engine, Correction.TOKEN_MASK)
        GRPO(group=2).loss(kept, corrected(new, weight_T), GRPO(group=2).credit(kept, new)).total.backward()
        grads.append(logp_T.grad)
    counted_T, left_out_T = grads
    torch.testing.assert_close(counted_T, left_out_T * 2 / 3)
    assert left_out_T.abs().sum() > 0


@each
def test_a_masked_episode_is_left_out_as_one_that_broke(algorithm: Algorithm[Any]) -> None:
    w = world(10, gap=0.5)
    tried, trees = with_kl(algorithm), groups(w, 3)
    leaf = actions(trees[0])[-1]
    found = masked(w, tried, trees, set(leaf.tokens), "sequence_mask")
    before = update(w, tried, trees)
    leaf.children[0].fault = "masked"
    equal(found, update(w, tried, trees))
    assert differ(found, before)


def test_statistics_by_hand() -> None:
    batch, trainer, engine = pair([[2.0, 0.5], [1.0, 4.0]])
    stats = mismatch_stats(batch, trainer, engine, low=0.6, high=3.0)
    ratios = [2.0, 0.5, 1.0, 4.0]
    logs = [math.log(r) for r in ratios]
    assert stats == pytest.approx(
        {
            "mismatch_mean_abs": sum(map(abs, logs)) / 4,
            "mismatch_max_abs": math.log(4),
            "mismatch_k1": -sum(logs) / 4,
            "mismatch_k3": sum(r - 1 - x for r, x in zip(ratios, logs, strict=True)) / 4,
            "mismatch_kept_mass": 7.5 / 4,
            "mismatch_kept_mass_error": t(*ratios).std().item() / 2,
            "mismatch_effective_sample": 7.5**2 / (4 * 21.25),
            "mismatch_outside": 0.5,
        }
    )
    far = mismatch_stats(batch, trainer + 1e3 * (batch.action_T >= 0), engine)
    assert far["mismatch_mean_abs"] > 999 and all(map(math.isfinite, far.values()))  # measured before the clamp


def test_statistics_of_nothing() -> None:
    w = world(4)
    batch = w.batch([w.state()])
    stats = mismatch_stats(batch, batch.old_logp_T, batch.old_logp_T)
    assert stats["mismatch_mean_abs"] == 0 and stats["mismatch_kept_mass"] == 1
    assert all(map(math.isfinite, stats.values())) and sampling_warning(1.0, 0, stats) is None
    with_one, trainer, engine = pair([[1.0]])
    assert sampling_warning(1.0, 0, mismatch_stats(with_one, trainer, engine)) is None


def sampled(top_p: float, tokens: int = 4000) -> dict[str, float]:
    """Statistics of tokens that an engine drew from the top of a distribution and scored by what it drew from."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(tokens, 50, dtype=torch.float64, generator=generator) * 2
    probs = logits.softmax(-1)
    order = probs.sort(-1, descending=True)
    kept = order.values * (order.values.cumsum(-1) - order.values < top_p)
    drawn = torch.multinomial(kept, 1, generator=generator)
    token = order.indices.gather(-1, drawn)
    batch, _, engine = pair([[1.0] * tokens])
    trainer = torch.zeros_like(engine)
    engine = torch.zeros_like(engine)
    trainer[batch.action_T >= 0] = probs.gather(-1, token).log().flatten()
    engine[batch.action_T >= 0] = (kept / kept.sum(-1, keepdim=True)).gather(-1, drawn).log().flatten()
    return mismatch_stats(batch, trainer, engine)


def test_a_cut_distribution_is_noticed() -> None:
    """The mean ratio is the mass that the cut kept, whatever was set or said."""
    cut, whole = sampled(0.8), sampled(1.0)
    assert 0.8 < cut["mismatch_kept_mass"] < 0.93
    warning = sampling_warning(1.0, 0, cut)
    assert warning is not None and "where 1 is right" in warning and "\n" not in warning
    assert whole["mismatch_kept_mass"] == pytest.approx(1) and sampling_warning(1.0, 0, whole) is None
    assert sampling_warning(1.0, -1, whole) is None


def test_settings_that_cut_are_named() -> None:
    stats = sampled(1.0, 100)
    assert "top_p 0.9 bias the ratio" in (sampling_warning(0.9, 0, stats) or "")
    both = sampling_warning(0.9, 20, stats | {"mismatch_kept_mass": 0.9}) or ""
    assert "top_p 0.9 and top_k 20" in both and "0.900" in both


def test_noise_is_no_bias() -> None:
    """Ratios that average 1 within their error are said nothing about, also when they scatter."""
    generator = torch.Generator().manual_seed(6)
    batch, trainer, engine = pair([[1.0] * 100])
    noise = torch.randn(100, dtype=torch.float64, generator=generator) * 0.6
    trainer[batch.action_T >= 0] += noise - 0.6**2 / 2  # E e^x = 1
    stats = mismatch_stats(batch, trainer, engine)
    assert abs(stats["mismatch_kept_mass"] - 1) > 0.01 and sampling_warning(1.0, 0, stats) is None
    certain = stats | {"mismatch_kept_mass_error": 0.0}
    assert sampling_warning(1.0, 0, certain) is not None  # the control: without its error it would be a bias
