"""KL estimators, GAE, masked statistics and the value loss against verl's functions."""

from dataclasses import replace

import torch
from reference_cases import Case, Padded, cases, close
from reference_deviations import deviation

from algorithms.formulas.groups import token_weight
from algorithms.formulas.maths import KL, kl_divergence, mean_and_variance, scale_advantage, squared_error
from algorithms.formulas.returns import scored
from algorithms.selfac import SelfAC

KL_NAMES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}


def estimator(name: str) -> KL:
    """verl's name for an estimator, as ours."""
    base, plus = name.removesuffix("+"), name.endswith("+")
    base = KL_NAMES.get(base, base)
    return KL(base if base == "k2" or not plus else base + "+")  # the gradient of k2 is its own already


@cases("kl")
def test_kl(case: Case) -> None:
    case.knows("kl_penalty")
    name = case.hyper.get("kl_penalty") or case.id.split("_extreme")[0].split("_large")[0]
    logp = case.tensor("logprob").requires_grad_()
    kl = kl_divergence(logp, case.tensor("ref_logprob"), estimator(name))
    kl.sum().backward()
    case.expect(kl, "kl")
    case.expect(logp.grad, "grad_logprob_of_sum")


@cases("gae")
def test_gae(case: Case) -> None:
    case.knows("gamma", "lam")
    mask = case.tensor("response_mask")
    padded = Padded.of(mask, rewards=case.tensor("token_level_rewards"))
    batch, said = padded.batch, padded.said
    value_T = padded.tokens(case.tensor("values"))
    # A turn of one token: the value of its state is the peer's value at that token.
    token_A = torch.zeros_like(batch.state_A).index_put((batch.action_T[said],), torch.arange(len(batch))[said])
    value_S = torch.zeros(len(batch.prev_S), dtype=torch.float64).index_put((batch.state_A,), value_T[token_A])
    reward_A = padded.tokens(case.tensor("token_level_rewards"))[token_A]
    batch = scored(replace(batch, reward_A=reward_A))
    algorithm = SelfAC(discount=case.hyper["gamma"], gae_lambda=case.hyper["lam"], normalize="whiten")
    adv_A = algorithm.advantage(batch, value_S)
    scaled_A = scale_advantage(adv_A, batch.count_A, algorithm.normalize)
    adv, scaled = padded.matrix(batch.to_tokens(adv_A)), padded.matrix(batch.to_tokens(scaled_A))
    if deviation(case, "whitening one number"):
        assert len(adv_A) == 1
        close(scaled_A, reward_A - value_S[batch.state_A], case.tolerance)
        return
    assert deviation(case, "off the mask") or mask.all()
    assert deviation(case, "mean over count + 1e-8")
    on = mask > 0
    names = ("advantages_raw", "returns", "advantages_whitened")
    raw, returns, whitened = (torch.tensor(case.outputs[name], dtype=torch.float64) for name in names)
    close(adv[on], raw[on], case.tolerance)
    close((adv + case.tensor("values"))[on], returns[on], case.tolerance)
    close(scaled[on], whitened[on], case.tolerance + 2e-8 * float(whitened.abs().max()))


@cases("masked_stats", required=False)
def test_masked_stats(case: Case) -> None:
    case.knows("shift_mean")
    values, mask = case.tensor("values"), case.tensor("mask")
    mean, variance = mean_and_variance(values, mask)
    whitened = scale_advantage(values, mask, "whiten")
    slack = 2e-8 * (1 + float(values.abs().max()))
    case.expect(mean, "mean", slack)
    if deviation(case, "whitening one number"):
        assert variance == 0 and torch.equal(whitened, values)
        return
    assert deviation(case, "mean over count + 1e-8")
    case.expect(variance, "var", slack)
    case.expect(whitened + mean if deviation(case, "shift_mean false") else whitened, "whiten", slack)


@cases("value_loss", required=False)
def test_value_loss(case: Case) -> None:
    case.knows("cliprange_value", "loss_agg_mode")
    mask = case.tensor("response_mask")
    value = case.tensor("vpreds").requires_grad_()
    error = squared_error(value, case.tensor("returns"), case.tensor("values"), case.hyper["cliprange_value"])
    weight_B = token_weight(case.hyper["loss_agg_mode"], mask.sum(-1), torch.ones(len(mask)), mask.shape[-1])
    loss = 0.5 * (error * mask * weight_B[:, None]).sum()
    loss.backward()
    if deviation(case, "all masked"):
        assert loss == 0 and not value.grad.any()
        return
    assert deviation(case, "count of clipped values")
    slack = 1e-8 * float(error.detach().max()) if deviation(case, "length + 1e-8") else 0.0
    case.expect(loss, "vf_loss", slack)
    case.expect(value.grad, "grad_vpreds", slack)
