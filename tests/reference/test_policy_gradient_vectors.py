"""REINFORCE++, OPO, pass@k, CISPO, GMPO and the KL in the reward against verl's functions."""

import json
import math
from dataclasses import replace

import pytest
import torch
from reference_cases import FOLDER, Case, Padded, cases, close
from reference_deviations import _groups, deviation
from test_group_vectors import check
from test_loss_vectors import global_factor, run
from torch import Tensor

from agents.tree import Batch, Forward
from algorithms.formulas.groups import best_advantage, length_weighted_advantage
from algorithms.formulas.maths import reward_less_kl
from algorithms.grpo import GRPO, GroupCredit


def credit_of(batch: Batch, algorithm: GRPO) -> GroupCredit:
    return algorithm.credit(batch, Forward(batch.old_logp_T, batch.old_logp_T))


def white(numbers: list[float]) -> list[float]:
    """Centred, and divided by the unbiased deviation; zeros where they are all the same."""
    n, mean = len(numbers), math.fsum(numbers) / max(1, len(numbers))
    if n < 2 or max(numbers) - min(numbers) <= 1e-8:
        return [0.0] * n
    return [(x - mean) / math.sqrt(math.fsum((y - mean) ** 2 for y in numbers) / (n - 1) + 1e-8) for x in numbers]


@cases("adv_reinforce_plus_plus")
def test_reinforce_plus_plus(case: Case) -> None:
    """Each token is a turn here, so that a discount per turn is the peer's discount per token."""
    case.knows("gamma")
    mask, rewards = case.tensor("response_mask"), case.tensor("token_level_rewards")
    padded = Padded.of(mask, rewards=rewards)
    token_A = torch.zeros_like(padded.batch.state_A)
    token_A = token_A.index_put((padded.batch.action_T[padded.said],), padded.batch.token_T[padded.said])
    batch = replace(padded.batch, reward_A=rewards.flatten()[token_A])
    settings = {"baseline": "none", "discount": case.hyper["gamma"], "aggregation": "token-sum", "group": 1}

    def advantages(scale: str) -> Tensor:
        credit = credit_of(batch, GRPO(scale=scale, **settings))
        return padded.matrix(credit.plus + credit.minus)

    if deviation(case, "whitening one number"):
        assert not advantages("tokens").any()
        return
    on = mask > 0
    returns, theirs = (torch.tensor(case.outputs[x], dtype=torch.float64) for x in ("returns", "advantages"))
    close(advantages("none")[on], returns[on], case.tolerance)
    assert deviation(case, "mean over count + 1e-8")
    close(advantages("tokens")[on], theirs[on], case.tolerance + 2e-8 * float(theirs.abs().max()))


@cases("adv_reinforce_plus_plus_baseline")
def test_reinforce_plus_plus_with_a_baseline(case: Case) -> None:
    case.knows("epsilon")
    mask, score_B = case.tensor("response_mask"), case.tensor("token_level_rewards").sum(-1)
    said_mask = mask.clone()
    said_mask[mask.sum(-1) == 0, 0] = 1  # a row in which nothing was said is still one of its group
    padded = Padded.of(said_mask, case.inputs["index"])
    row_L = padded.rows()
    credit = credit_of(replace(padded.batch, return_L=score_B[row_L]), GRPO(scale="tokens"))
    adv_B = torch.zeros_like(score_B).index_put((row_L,), credit.adv_L)
    theirs = torch.tensor(case.outputs["advantages"], dtype=torch.float64)

    # The formula in a loop, with the one difference: a group without a baseline, or without a signal, gives 0.
    groups = dict(zip(dict.fromkeys(case.inputs["index"]), _groups(case), strict=True))
    centred, alive = [], []
    for key, score in zip(case.inputs["index"], score_B.tolist(), strict=True):
        alive.append(len(groups[key]) > 1 and max(groups[key]) - min(groups[key]) > 1e-8)
        centred.append(score - math.fsum(groups[key]) / len(groups[key]) if alive[-1] else 0.0)
    said = [(row, x) for row, x in enumerate(centred) for _ in range(int(said_mask[row].sum()))]
    by_row = dict(zip((row for row, _ in said), white([x for _, x in said]), strict=True))
    close(adv_B, [by_row[row] * alive[row] for row in range(len(alive))], 1e-12)

    assert deviation(case, "mean over count + 1e-8")
    slack = case.tolerance + 2e-8 * (1 + float(theirs.abs().max()))
    if deviation(case, "group of one") or deviation(case, "rows without tokens"):
        return  # they are in everyone's mean and deviation
    for row in range(len(alive)):
        if alive[row] or not any(alive):
            close(adv_B[row] * mask[row], theirs[row], slack)
        else:
            assert deviation(case, "equal rewards") and adv_B[row] == 0


def numbered(case: Case) -> Tensor:
    """tree_L: the number of each row's group."""
    keys = {key: i for i, key in enumerate(dict.fromkeys(case.inputs["index"]))}
    return torch.tensor([keys[key] for key in case.inputs["index"]])


@cases("adv_opo")
def test_opo(case: Case) -> None:
    case.knows("epsilon")
    score_B, length_B = case.tensor("token_level_rewards").sum(-1), case.tensor("response_mask").sum(-1)
    check(case, length_weighted_advantage(score_B, length_B, torch.ones(len(score_B)), numbered(case)))


@cases("adv_grpo_passk")
def test_pass_at_k(case: Case) -> None:
    case.knows("epsilon", "norm_adv_by_std_in_grpo")
    score_B = case.tensor("token_level_rewards").sum(-1)
    scale = "group" if case.hyper.get("norm_adv_by_std_in_grpo", True) else "none"
    ones = torch.ones(len(score_B), dtype=torch.long)
    adv_B = best_advantage(score_B, ones, numbered(case), scale, case.hyper["epsilon"])
    if "error" in case.outputs:
        assert deviation(case, "group of one") and adv_B.isfinite().all()
    else:
        check(case, adv_B)


@cases("policy_loss_cispo")
def test_cispo(case: Case) -> None:
    case.knows("loss_agg_mode", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "global_batch_info")
    mask, mode = case.tensor("response_mask"), case.hyper["loss_agg_mode"]
    info = case.hyper.get("global_batch_info") or {}
    algorithm = GRPO(
        gate="cispo",
        aggregation=mode,
        length_norm=info.get("loss_scale_factor") or mask.shape[-1],
        clip_low=case.hyper["clip_ratio_low"],
        clip_high=case.hyper["clip_ratio_high"],
    )
    factor = torch.full_like(mask, global_factor(case, mode, mask))
    if deviation(case, "weights from the rollout"):
        factor = factor * case.tensor("rollout_is_weights")
    loss, grad, stats = run(case, algorithm, "response_mask", factor)
    if deviation(case, "all masked"):
        assert loss == 0 and not grad.any()
        return
    slack = 1e-8 * (1 + abs(case.outputs["loss"])) if deviation(case, "length + 1e-8") else 0.0
    case.expect(loss, "loss", slack)
    case.expect(grad, "grad_log_prob", slack)
    ratio = (case.tensor("log_prob") - case.tensor("old_log_prob"))[mask > 0].clamp(-20, 20).exp()
    far = (ratio < 1 - algorithm.clip_low) | (ratio > 1 + algorithm.clip_high)
    assert stats["clip_fraction"] == pytest.approx(float(far.double().mean()))


@cases("policy_loss_geo_mean")
def test_geometric_mean(case: Case) -> None:
    case.knows("loss_agg_mode", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "global_batch_info")
    mask = case.tensor("response_mask")
    algorithm = GRPO(
        gate="geometric",
        ratio="sequence_mean",
        clip_low=case.hyper["clip_ratio_low"],
        clip_high=case.hyper["clip_ratio_high"],
    )
    loss, grad, _ = run(case, algorithm, "response_mask")
    assert loss.isfinite() and grad.isfinite().all()
    if deviation(case, "all masked"):
        assert loss == 0 and not grad.any()
        return
    if deviation(case, "weights from the rollout") or deviation(case, "advantages that differ within an episode"):
        return
    rows = float((mask.sum(-1) > 0).double().mean()) if deviation(case, "rows without tokens") else 1.0
    slack = 1e-7 * (1 + abs(case.outputs["loss"]))
    assert deviation(case, "length + 1e-8")
    case.expect(loss * rows, "loss", slack)
    case.expect(grad * rows, "grad_log_prob", slack)


KL_CASES = json.loads((FOLDER / "kl_in_reward.json").read_text())


PLAIN = [given for given in KL_CASES["cases"] if "inputs" in given]
"""Without those of a coefficient that adapts itself, which is no setting here."""


@pytest.mark.parametrize("given", PLAIN, ids=lambda given: given["id"])
def test_kl_in_the_reward(given: dict) -> None:
    assert set(given["hyper"]) == {"kl_ratio"}
    reward, old, ref = (
        torch.tensor(given["inputs"][name], dtype=torch.float64)
        for name in ("token_level_scores", "old_log_prob", "ref_log_prob")
    )
    close(reward_less_kl(reward, old, ref, given["hyper"]["kl_ratio"]), given["outputs"], KL_CASES["tolerance"])
