"""PPO whose step is a token: advantages, policy loss and value loss against verl."""

from dataclasses import replace

import torch
from reference_cases import Case, Padded, cases, close
from reference_deviations import deviation
from test_loss_vectors import global_factor
from torch import Tensor

from agents.tree import Batch, Forward
from algorithms.formulas.token_gae import token_gae
from algorithms.ppo import PPO


def valued(padded: Padded, batch: Batch, logp_T: Tensor, values: Tensor) -> Forward:
    """A forward pass in which a matrix's entries are the values before its tokens.

    Every row of the matrix is a tree of its own, so every token has a token before it that is nobody else's.
    """
    mask_T = padded.said
    place_T, before_T = batch.token_T[mask_T], batch.parent_T[mask_T]
    value_T = torch.zeros(len(batch), dtype=torch.float64).index_put((before_T,), values.flatten()[place_T])
    return Forward(logp_T, torch.zeros_like(logp_T), None, value_T)


@cases("gae")
def test_advantages_of_tokens(case: Case) -> None:
    case.knows("gamma", "lam")
    mask, rewards, values = (case.tensor(n) for n in ("response_mask", "token_level_rewards", "values"))
    gamma, lam = case.hyper["gamma"], case.hyper["lam"]
    on = mask > 0
    padded = Padded.of(mask, rewards=rewards)
    # The trees of Padded end by a limit; the peer knows no value after the last token.
    batch = replace(padded.batch, terminated_S=torch.ones_like(padded.batch.terminated_S))
    algorithm = PPO(discount=gamma, gae_lambda=lam)
    credit = algorithm.credit(batch, valued(padded, batch, batch.old_logp_T, values))
    adv_T = credit.rows.per_token(credit.adv_P, len(batch))
    if deviation(case, "whitening one number"):
        assert len(credit.adv_P) == 1
        close(credit.plus_T + credit.minus_T, adv_T, case.tolerance)
        return
    names = ("advantages_raw", "returns", "advantages_whitened")
    raw, returns, whitened = (torch.tensor(case.outputs[name], dtype=torch.float64) for name in names)
    close(padded.matrix(adv_T)[on], raw[on], case.tolerance)
    # The formula on the peer's own padded matrices, holes and all: a reward that is paid in a hole is lost.
    adv = token_gae(rewards, values, torch.zeros(len(mask), dtype=torch.float64), mask, gamma, lam)
    close(adv[on], raw[on], case.tolerance)
    close((adv + values)[on], returns[on], case.tolerance)
    assert deviation(case, "off the mask") or mask.all()
    assert deviation(case, "mean over count + 1e-8")
    scaled = padded.matrix((credit.plus_T + credit.minus_T) / credit.weight_T.clamp_min(1e-12))
    close(scaled[on], whitened[on], case.tolerance + 2e-8 * float(whitened.abs().max()))


@cases("value_loss", required=False)
def test_value_loss(case: Case) -> None:
    case.knows("cliprange_value", "loss_agg_mode")
    mask = case.tensor("response_mask")
    if deviation(case, "all masked"):
        return
    padded = Padded.of(mask, rewards=torch.zeros_like(mask))
    batch, value = padded.batch, case.tensor("vpreds").requires_grad_()
    settings = {"value_clip": case.hyper["cliprange_value"], "aggregation": case.hyper["loss_agg_mode"]}
    algorithm = PPO(**settings, length_norm=float(mask.shape[1]))
    credit = algorithm.credit(batch, valued(padded, batch, batch.old_logp_T, case.tensor("values")))
    target_P = padded.tokens(case.tensor("returns"))[credit.rows.token_P]
    credit = replace(credit, adv_P=target_P - credit.value_P)
    value_T = valued(padded, batch, batch.old_logp_T, value).value_T
    assert value_T is not None
    total = algorithm.critic_loss(batch, value_T, credit)
    total.backward()
    assert deviation(case, "count of clipped values")
    slack = 1e-8 * (1 + case.outputs["vf_loss"]) if deviation(case, "length + 1e-8") else 0.0
    case.expect(total, "vf_loss", slack)
    case.expect(value.grad, "grad_vpreds", slack)


@cases("policy_loss_clip")
def test_policy_loss(case: Case) -> None:
    """Here the tokens of an episode may have advantages of their own."""
    case.knows("loss_agg_mode", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "global_batch_info")
    mask, mode, hyper = case.tensor("response_mask"), case.hyper["loss_agg_mode"], case.hyper
    algorithm = PPO(
        aggregation=mode,
        length_norm=(hyper.get("global_batch_info") or {}).get("loss_scale_factor") or mask.shape[-1],
        clip_low=hyper["clip_ratio_low"],
        clip_high=hyper["clip_ratio_high"],
        dual_clip=hyper["clip_ratio_c"],
    )
    padded = Padded.of(mask)
    logp = case.tensor("log_prob").requires_grad_()
    batch, new = padded.forward(logp, case.tensor("old_log_prob"))
    new = replace(new, value_T=torch.zeros(len(batch), dtype=torch.float64))
    factor = global_factor(case, mode, mask)
    weigh = case.tensor("rollout_is_weights") if deviation(case, "weights from the rollout") else torch.ones_like(mask)
    credit = algorithm.credit(batch, new.detach())
    adv_T = padded.tokens(case.tensor("advantages") * weigh * factor)
    credit = replace(credit, plus_T=credit.weight_T * adv_T.clamp_min(0), minus_T=credit.weight_T * adv_T.clamp_max(0))
    loss = algorithm.loss(batch, new, credit)
    loss.total.backward()
    if deviation(case, "all masked"):
        assert loss.stats["policy"] == 0 and not logp.grad.any()
        return
    slack = 1e-8 * (1 + abs(case.outputs["loss"])) if deviation(case, "length + 1e-8") else 0.0
    case.expect(loss.stats["policy"], "loss", slack)
    case.expect(logp.grad, "grad_log_prob", slack)
