"""Self-AC against the vectors that were worked out from the slides by brute force."""

import math
from dataclasses import replace
from typing import Any

import torch
from reference_cases import Case, cases, close, double
from torch import Tensor

from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack
from algorithms.formulas.maths import bounded
from algorithms.formulas.returns import scored
from algorithms.selfac import SelfAC, TurnCredit


def chain(rewards: list[float], lengths: list[int], terminated: bool) -> Batch:
    """One episode whose turns have the given rewards and lengths."""
    root = state = Node(Kind.STATE, (0,))
    for reward, length in zip(rewards, lengths, strict=True):
        state = state.add(Node(Kind.ACTION, (1,) * length, reward=reward)).add(Node(Kind.STATE, ()))
    state.terminated, state.truncated = terminated, not terminated
    batch = double(pack([root], critic_prompt=(2,)))
    return replace(batch, reward_A=torch.tensor(rewards, dtype=torch.float64))


def critic_loss(batch: Batch, value_S: Tensor, **hyper: Any) -> tuple[Tensor, Tensor]:
    """The critic's share of the loss and its gradient with respect to the values."""
    value_S = value_S.clone().requires_grad_()
    algorithm = SelfAC(alpha=1.0, **hyper)
    new = Forward(batch.old_logp_T, torch.zeros(len(batch)), value_S)
    total = algorithm.loss(batch, new, algorithm.credit(batch, new)).total
    total.backward()
    return total.detach(), value_S.grad


@cases("selfac_td")
def test_td(case: Case) -> None:
    case.knows("discount", "terminated", "gae_lambda")
    rewards, value_S = case.inputs["r"], case.tensor("V")
    batch = chain(rewards, [1] * len(rewards), case.hyper["terminated"])
    hyper = {"discount": case.hyper["discount"]}

    literal = SelfAC(literal=True, **hyper).targets(scored(batch), value_S)
    recommended = SelfAC(**hyper).targets(scored(batch), value_S)
    for m in range(1, 6):
        close(literal[m - 1], case.outputs["literal_targets"][str(m)], case.tolerance)
        close(recommended[m - 1, :-1], case.outputs["recommended_targets"][str(m)], case.tolerance)

    for gradient, name in (("detach", "semigradient"), ("residual", "residual")):
        slides = {"literal": True, "terminal_target": "zero", "td_grad": gradient}
        loss, grad = critic_loss(batch, value_S, **slides, **hyper)
        case.expect(loss, f"literal_loss_mean_{name}")
        case.expect(grad, f"literal_grad_V_{name}")
    case.expect(critic_loss(batch, value_S, terminal_target="none", **hyper)[0], "recommended_loss_states_only")
    case.expect(critic_loss(batch, value_S, terminal_target="zero", **hyper)[0], "recommended_loss_with_terminal_value")

    adv_A = SelfAC(**hyper).advantage(scored(batch), value_S)
    end_S = SelfAC(**hyper).end_value(batch, value_S)
    case.expect(adv_A, "advantages")
    case.expect(torch.cat([adv_A + value_S[:-1], end_S[-1:]]), "returns")
    gae = SelfAC(gae_lambda=case.hyper["gae_lambda"], **hyper)
    case.expect(gae.advantage(scored(batch), value_S), "advantages_gae")


@cases("selfac_actor")
def test_actor(case: Case) -> None:
    case.knows("clip", "log_ratio_clamp")
    assert case.hyper["log_ratio_clamp"] == 20
    old, new = case.inputs["old_logp"], case.inputs["new_logp"]
    lengths, n = [len(turn) for turn in old], len(old)
    batch = chain([0.0] * n, lengths, terminated=True)
    said = batch.action_T >= 0
    flat = torch.tensor([x for turn in old for x in turn], dtype=torch.float64)
    batch = replace(batch, old_logp_T=torch.zeros(len(batch), dtype=torch.float64).masked_scatter(said, flat))
    value_S = torch.zeros(n + 1, dtype=torch.float64)
    adv_A = case.tensor("advantages")

    for ratio in ("turn", "turn_mean", "token"):
        logp = torch.tensor([x for turn in new for x in turn], dtype=torch.float64, requires_grad=True)
        logp_T = torch.zeros(len(batch), dtype=torch.float64).masked_scatter(said, logp)
        algorithm = SelfAC(alpha=0, ratio=ratio, clip=case.hyper["clip"], dual_clip=math.inf, normalize="none")
        total = algorithm.loss(batch, Forward(logp_T, logp_T * 0, value_S), TurnCredit(value_S, adv_A)).total
        total.backward()
        expected = case.outputs[ratio]
        close(total, expected["loss"], case.tolerance)
        if expected["grad"] is not None:  # left out of the file for very long turns
            close(logp.grad, [g for turn in expected["grad"] for g in turn], case.tolerance)
        delta_T = logp_T.detach() - batch.old_logp_T
        delta_A = batch.per_action(delta_T) / (torch.tensor(lengths) if ratio == "turn_mean" else 1)
        if ratio == "token":
            close(bounded(delta_T[said]).exp(), [r for turn in expected["ratio"] for r in turn], case.tolerance)
        else:
            close(bounded(delta_A).exp(), expected["ratio"], case.tolerance)

    # The sum of logs keeps what the slides' product loses: 400 tokens underflow to 0 in float32.
    log_pi_A = batch.per_action(batch.old_logp_T)
    case.expect(log_pi_A, "log_pi_old")
    close(log_pi_A.exp().float(), case.outputs["pi_old_product_float32"], 1e-5)


@cases("selfac_tree_td")
def test_tree(case: Case) -> None:
    case.knows("discount")
    nodes = case.inputs["nodes"]
    states = [Node(Kind.STATE, (i,) if i == 0 else (), terminated=node["terminal"]) for i, node in enumerate(nodes)]
    for i, node in enumerate(nodes[1:], start=1):
        states[node["parent"]].add(Node(Kind.ACTION, (i,), reward=node["r"])).add(states[i])
    batch = pack([states[0]], critic_prompt=(len(nodes),))
    # Depth first, the tree's states and actions come in another order: an action's token is the state it leads to.
    token_A = torch.zeros_like(batch.state_A).index_put(
        (batch.action_T[batch.action_T >= 0],), batch.token_T[batch.action_T >= 0]
    )
    node_S = torch.zeros_like(batch.prev_S).index_put((batch.next_A,), token_A)
    reward_A = torch.tensor([node["r"] for node in nodes], dtype=torch.float64)[token_A]
    batch, value_S = scored(replace(batch, reward_A=reward_A)), case.tensor("V")[node_S]

    algorithm = SelfAC(discount=case.hyper["discount"], td_max=max(map(int, case.outputs["targets"])))
    target_MS = algorithm.targets(batch, value_S)
    place = {int(node): index for index, node in enumerate(node_S)}
    for m, targets in case.outputs["targets"].items():
        for node, target in targets.items():
            close(target_MS[int(m) - 1, place[int(node)]], target, case.tolerance)

    adv_A = algorithm.advantage(batch, value_S)
    sibling_A = replace(algorithm, baseline="sibling_mean").advantage(batch, value_S)
    for name, ours_A in (
        ("edge_return_mean_backup", adv_A + value_S[batch.state_A]),
        ("edge_advantage_value", adv_A),
        ("edge_advantage_sibling_mean", sibling_A),
    ):
        expected = case.outputs[name]
        assert set(map(int, expected)) == set(token_A.tolist())
        close(ours_A, [expected[str(node)] for node in token_A.tolist()], case.tolerance)
