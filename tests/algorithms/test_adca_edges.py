"""ADCA-GRPO by hand, and where groups, labels or verdicts are odd."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from adca_cases import EVERY, adv, advantages, chains, credit_of, gradient, groups
from algorithm_trees import actions, paths, world

from agents.tree import Kind, Node
from algorithms.adca import ADCA
from algorithms.grpo import GRPO

# -- by hand -----------------------------------------------------------------------------------------------------


def test_decouple_by_hand() -> None:
    """Two episodes, GOOD BAD and solved, BAD and not. Trajectory means 0 and -0.2: mean -0.1, var 0.03; o = +-1."""
    w = world(0)
    root = chains(w, ("gb", 1.0), ("b", 0.0))
    good, bad = 0.3 / math.sqrt(0.03 + 1e-8), -0.1 / math.sqrt(0.03 + 1e-8)  # 1.7320505, -0.5773502
    expected = [0.1 * (good + bad) + 1, 0.1 * bad + 1, 0.1 * bad - 1]
    assert expected == pytest.approx([1.115470, 0.942265, -1.057735], abs=1e-6)
    assert adv(ADCA(), root, w) == pytest.approx(expected, abs=1e-9)
    assert adv(ADCA(suffix=False), root, w) == pytest.approx([0.1 * good, expected[1], expected[2]])
    assert adv(ADCA(orm_distribution="all_steps"), root, w)[0] == pytest.approx(expected[0] + 1)
    assert adv(ADCA(orm_distribution="only_prm"), root, w) == pytest.approx([good + bad, bad, bad])
    assert adv(ADCA(beta=0.0), root, w) == pytest.approx([0.1 * (good + bad), 0.1 * bad, 0.1 * bad])
    root2 = math.sqrt(2)
    ours = adv(ADCA(enable_length_normalization=True), root, w)
    assert ours == pytest.approx([expected[0] / root2, expected[1] / root2, expected[2]])
    # Every step the same: mean -0.2 / 3, var 0.04 - mean^2.
    std = math.sqrt(0.04 - (0.2 / 3) ** 2)
    z = adv(ADCA(equal_trajectory_weight=False, orm_distribution="only_prm", suffix=False), root, w)
    assert z == pytest.approx([(0.2 + 0.2 / 3) / std, (-0.2 + 0.2 / 3) / std, (-0.2 + 0.2 / 3) / std])


def test_allocation_by_hand() -> None:
    """A success with GOOD BAD gets 1 / 1.2 and 0.2 / 1.2, a failure with GOOD BAD -0.2 / 1.2 and -1 / 1.2."""
    w = world(0)
    root = chains(w, ("gb", 1.0), ("gb", 0.0))
    plain = ADCA(prm_scheme="allocation", do_batch_norm=False, alpha=1.0, beta=0.0, suffix=False)
    assert adv(plain, root, w) == pytest.approx([5 / 6, 1 / 6, -1 / 6, -5 / 6])
    assert adv(replace(plain, suffix=True), root, w) == pytest.approx([1, 1 / 6, -1, -5 / 6])
    zero = replace(plain, consistent_scale=0.0, pos_unconsistent_scale=0.0, neg_unconsistent_scale=0.0)
    assert adv(zero, root, w) == [0, 0, 0, 0]


def test_a_shared_action_in_episodes_of_different_length() -> None:
    """The first action is a step of both; what follows it differs, and so do its two credits: a plus and a minus."""
    w = world(0)
    root = Node(Kind.STATE, w.text(1))
    fork = root.add(Node(Kind.ACTION, w.text(1), label=True)).add(Node(Kind.STATE, w.text(1)))
    for labels, paid in (("g", 1.0), ("bb", 0.0)):
        state = fork
        for k, label in enumerate(labels):
            reward = paid if k == len(labels) - 1 else 0.0
            state = state.add(Node(Kind.ACTION, w.text(1), reward=reward, label=label == "g")).add(Node(Kind.STATE, ()))
        state.terminated, state.success = True, paid > 0.5
    algorithm = ADCA(aggregation="token-sum", alpha=0.5)
    long = advantages(algorithm, list(paths(root)))
    batch, credit = credit_of(w, algorithm, [root])
    first = int((batch.action_T == 0).nonzero())
    assert long[0][0] > 0 > long[1][0]
    assert float(credit.plus_T[first]) == pytest.approx(long[0][0])
    assert float(credit.minus_T[first]) == pytest.approx(long[1][0])
    assert float(credit.adv_A[0]) == pytest.approx((long[0][0] + long[1][0]) / 2)


def test_metrics_by_hand() -> None:
    """z: 1.7320505 -0.5773502 | -0.5773502; o: 1 | -1."""
    w = world(0)
    stats = credit_of(w, ADCA(), [chains(w, ("gb", 1.0), ("b", 0.0))])[1].stats
    labels = (0.1 * (1.7320505 + 0.5773502), 0.1 * 0.5773502)
    assert stats["attr_mean"] == pytest.approx(0.5773502 / 3, abs=1e-6)
    assert (stats["out_mean"], stats["out_std"]) == pytest.approx((0, 1))
    assert stats["outcome_share_last_mean"] == pytest.approx(sum(1 / (1 + x) for x in labels) / 2, abs=1e-6)
    assert stats["alpha_effective"] == pytest.approx(sum(labels) / 2, abs=1e-6)
    assert stats["sum_step_reward_sign_agree"] == 1.0
    assert stats["pos_traj_prm_good_majority_rate"] == 0.0  # one GOOD of two is no majority
    assert stats["neg_traj_prm_bad_majority_rate"] == 1.0
    assert stats["unjudged"] == stats["zero_groups"] == 0.0
    assert (
        "attr_mean" not in credit_of(w, ADCA(enable_adca_metric=False), [chains(w, ("gb", 1.0), ("b", 0.0))])[1].stats
    )
    # Without an outcome the ratio would be 2e11.
    assert credit_of(w, ADCA(), [chains(w, ("gb", 0.0), ("b", 0.0))])[1].stats["alpha_effective"] == 100


# -- edges -------------------------------------------------------------------------------------------------------


def test_the_process_alone_teaches_where_all_outcomes_are_the_same() -> None:
    w = world(1)
    root = chains(w, ("gb", 0.0), ("gg", 0.0), ("bb", 0.0))
    ours = adv(ADCA(), root, w)
    assert ours[2] > 0 > ours[4] and not gradient(w, GRPO(), [root])[1].any()
    assert adv(ADCA(skip_type="skip_small_adv"), chains(w, ("??", 0.0), ("?", 0.0)), w) == [0, 0, 0]


@pytest.mark.parametrize("labels", ["g", "b"])
@pytest.mark.parametrize("weight", [True, False])
def test_labels_that_are_all_the_same_are_not_noise(labels: str, weight: bool) -> None:
    """z is exactly 0: the outcome alone, and nothing at all without one."""
    w = world(2)
    algorithm = ADCA(equal_trajectory_weight=weight)
    assert adv(algorithm, chains(w, (labels * 3, 1.0), (labels, 0.0)), w) == pytest.approx([1, 1, 1, -1], abs=1e-9)
    root = chains(w, *[(labels * n, 0.1) for n in (3, 1, 2)])
    assert not gradient(w, algorithm, [root])[1].any()


def test_a_group_of_one_learns_from_its_labels() -> None:
    w = world(3)
    ours = adv(ADCA(alpha=1.0), chains(w, ("gb", 1.0)), w)
    assert ours == pytest.approx([0, -1], abs=1e-6)
    assert adv(ADCA(), chains(w, ("gg", 1.0)), w) == [0, 0]


def test_an_unparsed_episode_keeps_its_outcome_and_touches_nobody() -> None:
    w = world(4)
    some = chains(w, ("gb", 1.0), ("b", 0.0), ("g?", 1.0))
    ours, stats = adv(ADCA(), some, w), credit_of(w, ADCA(), [some])[1].stats
    assert stats["unjudged"] == pytest.approx(1 / 3)
    o = math.sqrt(0.5)  # (1 - 2/3) / sqrt(2/9)
    assert ours[3:] == pytest.approx([o, o], abs=1e-9)
    without = adv(ADCA(beta=0.0), chains(w, ("gb", 1.0), ("b", 0.0)), w)
    assert adv(ADCA(beta=0.0), some, w) == pytest.approx([*without, 0, 0], abs=1e-12)
    full = adv(ADCA(beta=0.0), chains(w, ("gb", 1.0), ("b", 0.0), ("gg", 1.0)), w)  # the control: a label does touch
    assert abs(full[0] - without[0]) > 1e-3


def test_metrics_are_of_judged_episodes() -> None:
    w = world(4)
    judged, some = chains(w, ("gb", 1.0), ("b", 0.0)), chains(w, ("gb", 1.0), ("b", 0.0), ("g?", 1.0), ("?", 0.0))
    for scheme in ("decouple", "allocation"):
        ours, theirs = (credit_of(w, ADCA(prm_scheme=scheme), [t])[1].stats for t in (some, judged))
        assert ours["unjudged"] == 0.5 and theirs["unjudged"] == 0
        assert ours | {"unjudged": 0.0} == pytest.approx(theirs, abs=1e-12)


def test_skipped_episodes_have_the_label_of_their_outcome() -> None:
    w = world(5)
    algorithm = ADCA(skip_type="skip_all_neg")
    asked, known = chains(w, ("gb", 1.0), ("??", 0.0)), chains(w, ("gb", 1.0), ("bb", 0.0))
    assert adv(algorithm, asked, w) == pytest.approx(adv(ADCA(), known, w), abs=1e-12)
    batch, credit = credit_of(w, algorithm, [asked])
    assert algorithm.skipped(batch).tolist() == [False, True] and credit.stats["unjudged"] == 0
    assert credit_of(w, ADCA(), [asked])[1].stats["unjudged"] == 0.5
    blind = replace(batch, success_L=torch.full_like(batch.success_L, -1))  # no verdict: nothing to label it by
    assert algorithm.credit(blind, None).stats["unjudged"] == 0.5
    small = ADCA(skip_type="skip_small_adv")
    mixed = w.batch([chains(w, ("g", 1.0), ("g", 0.5), ("g", 0.0)), chains(w, ("g", 0.7), ("g", 0.7))])
    assert small.skipped(mixed).tolist() == [False, True, False, True, True]
    assert not ADCA().skipped(mixed).any()


def test_success_is_the_verdict() -> None:
    """Allocation turns on it, never on the reward."""
    w = world(6)
    batch = w.batch([chains(w, ("gb", 0.05), ("gb", 0.0))], critic=False)
    algorithm = ADCA(prm_scheme="allocation", do_batch_norm=False, alpha=1.0, beta=0.0)
    assert algorithm.credit(batch, None).adv_A[0] == pytest.approx(-1)
    won = replace(batch, success_L=torch.tensor([1, 0]))
    assert algorithm.credit(won, None).adv_A[0] == pytest.approx(1)
    none = replace(batch, success_L=torch.tensor([-1, 0]))
    assert algorithm.credit(none, None).adv_A.tolist() == pytest.approx([0, 0, -1, -5 / 6])


def test_faulted_and_unscored_episodes_are_not_there() -> None:
    """Bit for bit the gradient of the batch without a broken one; one without a number teaches nothing."""
    w = world(7)
    root = chains(w, ("gb", 1.0), ("bg", 0.0), ("g", 0.0), ("bb", 1.0))
    without = replace(root, children=root.children[:3])
    last = actions(root.children[3])[-1]
    last.children[0].fault = "the sandbox died"
    for options in EVERY:
        ours, theirs = gradient(w, ADCA(**options), [root]), gradient(w, ADCA(**options), [without])
        assert torch.equal(ours[1], theirs[1]) and theirs[1].any()
    last.children[0].fault, last.reward = None, math.nan
    blank = [t for action in actions(root.children[3]) for t in action.tokens]
    for options in EVERY:
        grad = gradient(w, replace(ADCA(**options), kl_coef=0.0), [root])[1]
        assert not grad[blank].any() and grad.any()


def test_alpha_falls_along_a_cosine_of_the_updates() -> None:
    w = world(10)
    algorithm = ADCA(alpha=0.4, alpha_min=0.1, alpha_steps=100)
    for version, alpha in ((-1, 0.4), (0, 0.4), (50, 0.25), (100, 0.1), (1000, 0.1)):
        root = chains(w, ("gb", 1.0), ("b", 0.0))
        for action in actions(root):
            action.version = version
        stats = credit_of(w, algorithm, [root])[1].stats
        assert stats["alpha"] == pytest.approx(alpha)
        assert adv(algorithm, root, w) == pytest.approx(adv(ADCA(alpha=alpha), root, w))


def test_float32_models_are_welcome() -> None:
    w = world(11)
    batch = w.batch(groups(w), critic=False)
    batch = replace(
        batch, old_logp_T=batch.old_logp_T.float(), return_L=batch.return_L.float(), reward_A=batch.reward_A.float()
    )
    logp_T = batch.old_logp_T.clone().requires_grad_()
    new = replace(w.forward(batch, *w.numbers()), logp_T=logp_T)
    loss = ADCA().loss(batch, new, ADCA().credit(batch, new))
    loss.total.backward()
    assert loss.total.dtype == torch.float64 and logp_T.grad.dtype == torch.float32 and logp_T.grad.any()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": 1}, "group must be at least 2, not 1: one episode alone has nothing to compare with"),
        ({"alpha": -0.1}, "alpha must not be negative, but is -0.1"),
        ({"alpha": math.nan}, "alpha must not be negative, but is nan"),
        ({"beta": -1.0}, "beta must not be negative"),
        ({"prm_epoch": -1}, "prm_epoch must not be negative"),
        ({"alpha_steps": -1}, "alpha_steps must not be negative"),
        ({"fix_base": 0.0}, "fix_base must be above 0, not 0.0"),
        ({"consistent_scale": -1.0}, "consistent_scale must not be negative"),
        ({"clip_low": 1.5}, "clip_low must lie in 0..1"),
        ({"dual_clip": 1.0}, "dual_clip must be above 1"),
        ({"kl_coef": -0.1}, "kl_coef must not be negative"),
        ({"prm_scheme": "both"}, "Scheme must be one of decouple, allocation, not 'both'"),
        ({"orm_distribution": "first"}, "OrmDistribution must be one of last_step, all_steps, only_prm"),
        ({"overall_score_source": "rewards"}, "ScoreSource must be one of token_level_rewards, advantages"),
        ({"skip_type": "some"}, "SkipType must be one of none, skip_small_adv, skip_all_neg"),
        (
            {"prm_scheme": "allocation", "enable_length_normalization": True},
            "enable_length_normalization is for prm_scheme decouple only",
        ),
        (
            {"prm_scheme": "allocation", "orm_distribution": "only_prm"},
            "orm_distribution only_prm is for prm_scheme decouple only",
        ),
    ],
)
def test_wrong_settings_say_so_in_one_line(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        ADCA(**wrong)
    assert "\n" not in str(raised.value)


def test_what_it_asks_for() -> None:
    assert ADCA().needs.judge and not ADCA(enable=False).needs.judge
    return_L, tree_L, visit_L = (torch.tensor(x) for x in ([1.0, 0.0, 0.3, 0.3], [0, 0, 1, 1], [0, 0, 1, 2]))
    assert ADCA().asked(return_L, tree_L, visit_L).all()
    assert ADCA(prm_epoch=2).asked(return_L, tree_L, visit_L).tolist() == [True, True, True, False]
    assert ADCA(skip_type="skip_all_neg").asked(return_L, tree_L, visit_L).tolist() == [True, False, True, True]
    small = ADCA(skip_type="skip_small_adv", prm_epoch=1).asked(return_L, tree_L, visit_L)
    assert small.tolist() == [True, True, False, False]
    assert ADCA().judge_score(return_L, tree_L).tolist() == pytest.approx([1, -1, -0.4, -0.4])
    score_L = ADCA(overall_score_source="advantages").judge_score(return_L, tree_L)
    assert score_L.tolist() == pytest.approx([0.5**0.5, -(0.5**0.5), 0, 0], abs=1e-5)
    assert ADCA().needs.judge and not ADCA().needs.critic and ADCA(group=4).sampling.group == 4
    assert ADCA(kl_coef=0.1).needs.reference and not ADCA().needs.reference
