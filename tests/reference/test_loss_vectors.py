"""Aggregation and the clipped losses against verl and TRL, through `GRPO.weigh` and `GRPO.loss` on chains."""

import math
from dataclasses import replace

import torch
from reference_cases import Case, Padded, cases, close
from reference_deviations import deviation
from torch import Tensor

from algorithms.formulas.groups import lengths, token_weight
from algorithms.grpo import GRPO, GroupCredit


def credit_of(padded: Padded, algorithm: GRPO, adv: Tensor, factor: Tensor) -> GroupCredit:
    """The credit of ``algorithm`` for given advantages, every weight of the policy loss times its token's factor."""
    batch, row_L = padded.batch, padded.rows()
    one = bool((adv == adv[:, :1]).all() and (factor == factor[:, :1]).all())
    adv_L = torch.where(row_L >= 0, (adv * factor)[row_L, 0], 0)
    credit = algorithm.weigh(batch, adv_L, lengths(batch), batch.count_L)
    if one:
        return credit
    # No algorithm of ours gives the tokens of an episode several advantages: put them in by hand.
    plus_T, minus_T = (credit.weight_T * padded.tokens(x * factor) for x in (adv.clamp_min(0), adv.clamp_max(0)))
    if algorithm.ratio != "token":
        plus_T, minus_T = (batch.per_episode(batch.per_action(x)) for x in (plus_T, minus_T))
    return replace(credit, plus=plus_T, minus=minus_T)


def run(case: Case, algorithm: GRPO, mask: str, factor: Tensor | None = None) -> tuple[Tensor, Tensor, dict]:
    """Loss, its gradient with respect to the padded log-probabilities, and the stats; ``factor`` is per token."""
    padded = Padded.of(case.tensor(mask))
    adv = case.tensor("advantages")
    adv = adv if adv.dim() == 2 else adv[:, None].expand(padded.mask.shape)
    logp = case.tensor("log_prob").requires_grad_()
    ref = case.tensor("ref_log_prob") if algorithm.needs.reference else None
    batch, new = padded.forward(logp, case.tensor("old_log_prob"), ref)
    credit = credit_of(padded, algorithm, adv, torch.ones_like(adv) if factor is None else factor)
    loss = algorithm.loss(batch, new, credit)
    loss.total.backward()
    return loss.total.detach(), logp.grad, loss.stats


def global_factor(case: Case, mode: str, mask: Tensor) -> float:
    """What turns our mean over this batch into verl's mean over all workers, of which this batch is a part."""
    info = case.hyper.get("global_batch_info") or {k: v for k, v in case.hyper.items() if k in GLOBAL}
    if not info:
        return 1.0
    assert deviation(case, "global normaliser") and set(info) <= set(GLOBAL)
    workers = info.get("dp_size", 1)
    if mode == "token-mean":
        return workers * float(mask.sum()) / (info.get("batch_num_tokens") or float(mask.sum()))
    rows = float((mask.sum(-1) > 0).sum())
    return 1.0 if mode == "token-sum" else workers * rows / (info.get("global_batch_size") or rows)


GLOBAL = ("dp_size", "batch_num_tokens", "global_batch_size", "loss_scale_factor")


@cases("agg_loss")
def test_aggregation(case: Case) -> None:
    case.knows("loss_agg_mode", *GLOBAL)
    mode, x, mask = case.hyper["loss_agg_mode"], case.tensor("loss_mat"), case.tensor("loss_mask")
    norm = case.hyper.get("loss_scale_factor") or mask.shape[-1]
    weight_B = token_weight(mode, mask.sum(-1), torch.ones(len(mask)), norm)
    ours = (x * mask * weight_B[:, None]).sum() * global_factor(case, mode, mask)
    if deviation(case, "all masked"):
        assert ours == 0
    else:
        case.expect(ours, slack=1e-8 * float(x.abs().max()) if deviation(case, "length + 1e-8") else 0.0)


@cases("policy_loss_clip")
def test_clipped_loss(case: Case) -> None:
    case.knows("loss_agg_mode", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "global_batch_info")
    mask, mode = case.tensor("response_mask"), case.hyper["loss_agg_mode"]
    info = case.hyper.get("global_batch_info") or {}
    algorithm = GRPO(
        aggregation=mode,
        length_norm=info.get("loss_scale_factor") or mask.shape[-1],
        clip_low=case.hyper["clip_ratio_low"],
        clip_high=case.hyper["clip_ratio_high"],
        dual_clip=case.hyper["clip_ratio_c"],
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
    # verl's two fractions are over count + 1e-8 tokens; ours is one and counts both ends.
    metrics = case.outputs["metrics"]
    both = metrics["actor/pg_clipfrac"] + metrics["actor/pg_clipfrac_lower"]
    close(stats["clip_fraction"], both, 1e-7)


@cases("policy_loss_gspo", required=False)
def test_gspo(case: Case) -> None:
    case.knows("loss_agg_mode", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "global_batch_info")
    mask = case.tensor("response_mask")
    algorithm = GRPO(
        ratio="sequence_mean",
        aggregation="seq-mean-token-mean",  # verl's only one here, whatever the case says
        clip_low=case.hyper["clip_ratio_low"],
        clip_high=case.hyper["clip_ratio_high"],
        dual_clip=math.inf,
    )
    factor = torch.full_like(mask, global_factor(case, "seq-mean-token-mean", mask))
    if deviation(case, "weights from the rollout"):
        factor = factor * case.tensor("rollout_is_weights")
    loss, grad, stats = run(case, algorithm, "response_mask", factor)
    if deviation(case, "all masked"):
        assert loss == 0 and not grad.any()
        return
    if deviation(case, "ratio above e^10"):
        assert loss.isfinite() and grad.isfinite().all()
        return
    slack = 1e-8 * (1 + abs(case.outputs["loss"]))
    case.expect(loss, "loss", slack)
    if deviation(case, "advantages that differ within an episode"):
        close(grad.sum(-1), torch.tensor(case.outputs["grad_log_prob"], dtype=torch.float64).sum(-1), 10 * slack)
    else:
        case.expect(grad, "grad_log_prob", slack)
        close(stats["clip_fraction"], episodes_clipped(case, mask), 1e-7)


def episodes_clipped(case: Case, mask: Tensor) -> float:
    """Our share of clipped episodes, worked out again: verl's metric counts an episode once per token."""
    length_B = mask.sum(-1).clamp_min(1)
    gap = (case.tensor("log_prob") - case.tensor("old_log_prob")) * mask
    ratio_B, adv_B = (gap.sum(-1) / length_B).exp(), case.tensor("advantages")[:, 0]
    shut_B = (adv_B > 0) & (ratio_B > 1 + case.hyper["clip_ratio_high"])
    shut_B |= (adv_B < 0) & (ratio_B < 1 - case.hyper["clip_ratio_low"])
    by_token = float((shut_B * mask.sum(-1)).sum() / mask.sum())
    close(by_token, case.outputs["metrics"]["actor/pg_clipfrac"], 1e-7)
    return float(shut_B[mask.any(-1)].double().mean())


TRL_AGGREGATION = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "rloo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "luspo": "seq-mean-token-sum",
}
TRL_RATIO = {"token": "token", "sequence": "sequence_mean", "sequence(sum)": "sequence"}


def float32(x: float) -> float:
    """As the peer holds its temperatures: see the deviations."""
    return float(torch.tensor(x, dtype=torch.float32))


def check_trl(case: Case) -> None:
    case.knows(
        *("loss_type", "importance_sampling_level", "beta", "epsilon", "epsilon_high", "delta"),
        *("max_completion_length", "use_bias_correction_kl", "gradient_accumulation_steps"),
        *("sapo_temperature_pos", "sapo_temperature_neg"),
    )
    hyper, kind = case.hyper, case.hyper["loss_type"]
    if deviation(case, "not shipped"):
        assert kind not in TRL_AGGREGATION
        return
    algorithm = GRPO(
        ratio=TRL_RATIO[hyper["importance_sampling_level"]],
        aggregation=TRL_AGGREGATION[kind],
        length_norm=hyper["max_completion_length"],
        gate="soft" if kind == "sapo" else "clip",
        tau_plus=float32(hyper.get("sapo_temperature_pos", 1.0)),
        tau_minus=float32(hyper.get("sapo_temperature_neg", 1.05)),
        clip_low=hyper["epsilon"],
        clip_high=hyper["epsilon_high"],
        dual_clip=hyper["delta"] or math.inf,  # delta bounds the unclipped ratio, which only a bad token can reach
        kl_coef=0.0 if kind == "rloo" else hyper["beta"],
        kl="k3",
        kl_unbiased=bool(hyper["use_bias_correction_kl"]),
    )
    loss, grad, stats = run(case, algorithm, "mask")
    if deviation(case, "all masked"):
        assert loss == 0 and not grad.any()
        return
    assert loss.isfinite() and grad.isfinite().all()
    bounded = ("log-ratio beyond 20", "k3 above 10", "delta below 1 + epsilon")
    other = ("padding in luspo", "bias-corrected KL at sequence level")
    if any(deviation(case, name) for name in bounded + other):
        return
    factor = 1.0 if kind == "dapo" else 1 / hyper["gradient_accumulation_steps"]
    if deviation(case, "rows without tokens") and TRL_AGGREGATION[kind].startswith("seq"):
        said = case.tensor("mask").sum(-1) > 0
        factor *= float(said.double().mean())
    case.expect(loss * factor, "loss")
    case.expect(grad * factor, "grad_log_prob")
    metrics = case.outputs["metrics"]
    if "clip_ratio/region_mean" in metrics and hyper["delta"] is None:
        close(stats["clip_fraction"], metrics["clip_ratio/region_mean"], case.tolerance)
    if "kl" in metrics and algorithm.aggregation == "token-mean":
        close(stats["kl"], metrics["kl"], case.tolerance)


@cases("trl_grpo_loss")
def test_trl_grpo(case: Case) -> None:
    check_trl(case)


@cases("trl_rloo_loss")
def test_trl_rloo(case: Case) -> None:
    check_trl(case)
