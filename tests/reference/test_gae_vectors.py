"""Generalised advantage estimation over turns, its two-level form, and the value loss, against verl and RAGEN."""

from dataclasses import replace

import torch
from reference_cases import Case, Padded, cases, close
from reference_deviations import deviation

from agents.tree import Forward
from algorithms.turn_ppo import TurnPPO


@cases("gae")
def test_turn_ppo(case: Case) -> None:
    """A turn of one token: the value of its state is the peer's value at that token."""
    case.knows("gamma", "lam")
    mask, rewards = case.tensor("response_mask"), case.tensor("token_level_rewards")
    padded = Padded.of(mask, rewards=rewards)
    batch, said = padded.batch, padded.said
    place_A = torch.zeros_like(batch.state_A).index_put((batch.action_T[said],), batch.token_T[said])
    # The trees of Padded end by a limit; the peer knows no value after the last token.
    batch = replace(batch, reward_A=rewards.flatten()[place_A], terminated_S=torch.ones_like(batch.terminated_S))
    value_S = torch.zeros(len(batch.prev_S), dtype=torch.float64)
    value_S = value_S.index_put((batch.state_A,), case.tensor("values").flatten()[place_A])
    old = Forward(batch.old_logp_T, batch.old_logp_T, value_S)
    algorithm = TurnPPO(discount=case.hyper["gamma"], gae_lambda=case.hyper["lam"], value_coef=1.0)
    credit = algorithm.credit(batch, old)
    adv_A = algorithm.action_advantage(batch, credit)
    if deviation(case, "whitening one number"):
        assert len(adv_A) == 1
        close(credit.plus_A + credit.minus_A, adv_A, case.tolerance)
        return
    assert deviation(case, "off the mask") or mask.all()
    assert deviation(case, "mean over count + 1e-8")
    on = mask > 0
    names = ("advantages_raw", "returns", "advantages_whitened")
    raw, returns, whitened = (torch.tensor(case.outputs[name], dtype=torch.float64) for name in names)
    close(padded.matrix(batch.to_tokens(adv_A))[on], raw[on], case.tolerance)
    target_P = credit.adv_P + credit.value_P
    close(padded.matrix(batch.to_tokens(credit.rows.per_action(target_P)))[on], returns[on], case.tolerance)
    scaled_A = (credit.plus_A + credit.minus_A) / credit.weight_A
    slack = case.tolerance + 2e-8 * float(whitened.abs().max())
    close(padded.matrix(batch.to_tokens(scaled_A))[on], whitened[on], slack)


@cases("value_loss", required=False)
def test_value_loss(case: Case) -> None:
    """The critic's loss of Turn-PPO is the peer's token mean, a turn being a token."""
    case.knows("cliprange_value", "loss_agg_mode")
    mask = case.tensor("response_mask")
    if case.hyper["loss_agg_mode"] != "token-mean" or deviation(case, "all masked"):
        return  # the other means are those of test_maths_vectors
    padded = Padded.of(mask, rewards=torch.zeros_like(mask))
    batch, said = padded.batch, padded.said
    place_A = torch.zeros_like(batch.state_A).index_put((batch.action_T[said],), batch.token_T[said])
    value = case.tensor("vpreds").requires_grad_()
    algorithm = TurnPPO(value_clip=case.hyper["cliprange_value"], value_coef=1.0)

    def forward(x: torch.Tensor) -> Forward:
        value_S = torch.zeros(len(batch.prev_S), dtype=torch.float64)
        return Forward(batch.old_logp_T, batch.old_logp_T, value_S.index_put((batch.state_A,), x.flatten()[place_A]))

    credit = algorithm.credit(batch, forward(case.tensor("values")))
    target_P = case.tensor("returns").flatten()[place_A][credit.rows.action_P]
    credit = replace(
        credit,
        adv_P=target_P - credit.value_P,
        plus_A=torch.zeros_like(credit.plus_A),
        minus_A=torch.zeros_like(credit.minus_A),
    )
    total = algorithm.loss(batch, forward(value), credit).total
    total.backward()
    assert deviation(case, "count of clipped values")
    case.expect(total, "vf_loss")
    case.expect(value.grad, "grad_vpreds")
