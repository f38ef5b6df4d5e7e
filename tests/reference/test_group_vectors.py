"""Group advantages, and what the tokens of a shared tree weigh, against verl's functions on duplicated rows."""

from dataclasses import replace
from typing import Any

import torch
from reference_cases import Case, Padded, cases, close, double
from reference_deviations import _groups, deviation

from agents.tree import Forward, Kind, Node
from agents.tree.packing import pack
from algorithms.arpo import ARPO
from algorithms.grpo import GRPO


def advantages(case: Case, algorithm: GRPO) -> torch.Tensor:
    """What ``algorithm`` makes of the case's scores: adv_B, one number per row."""
    mask = case.tensor("response_mask")
    said = mask.clone()
    said[:, 0] = 1  # a row in which nothing was said is still one of its group
    padded = Padded.of(said, case.inputs["index"])
    score_B = case.tensor("token_level_rewards").sum(-1)
    row_L = padded.rows()
    batch = replace(padded.batch, return_L=score_B[row_L])
    credit = algorithm.credit(batch, Forward(batch.old_logp_T, batch.old_logp_T))
    return torch.zeros_like(score_B).index_put((row_L,), credit.adv_L)


def check(case: Case, adv_B: torch.Tensor) -> None:
    mask = case.tensor("response_mask")
    theirs = torch.tensor(case.outputs["advantages"], dtype=torch.float64)
    assert not theirs[mask == 0].any()
    scores, index = _groups(case), case.inputs["index"]
    numbers = dict(zip(dict.fromkeys(index), scores, strict=True))
    for row, key in enumerate(index):
        group = numbers[key]
        if len(group) == 1:
            assert deviation(case, "group of one") and adv_B[row] == 0
        elif max(group) - min(group) <= 1e-8:
            assert deviation(case, "equal rewards") and adv_B[row] == 0
        else:
            close(adv_B[row] * mask[row], theirs[row], case.tolerance)


def grpo(case: Case) -> GRPO:
    case.knows("epsilon", "norm_adv_by_std_in_grpo")
    scale = "group" if case.hyper.get("norm_adv_by_std_in_grpo", True) else "none"
    return GRPO(scale=scale, std_eps=case.hyper["epsilon"])


@cases("adv_grpo")
def test_grpo(case: Case) -> None:
    check(case, advantages(case, grpo(case)))


@cases("adv_grpo_vectorized")
def test_grpo_vectorized(case: Case) -> None:
    check(case, advantages(case, grpo(case)))


@cases("adv_rloo")
def test_rloo(case: Case) -> None:
    case.knows("epsilon")
    check(case, advantages(case, GRPO(baseline="leave_one_out", scale="none")))


@cases("adv_rloo_vectorized")
def test_rloo_vectorized(case: Case) -> None:
    case.knows("epsilon")
    check(case, advantages(case, GRPO(baseline="leave_one_out", scale="none")))


@cases("tree_soft_hard_advantage")
def test_shared_tree(case: Case) -> None:
    case.knows("clip", "clip_ratio_c")
    nodes, offset = case.inputs["nodes"], case.inputs["node_token_offset"]
    root = Node(Kind.STATE, (len(case.inputs["log_prob"]),))
    after: dict[int, Node] = {-1: root}
    for i, node in enumerate(nodes):
        said = Node(Kind.ACTION, tuple(range(offset[i], offset[i] + node["len"])))
        after[i] = after[node["parent"]].add(said).add(Node(Kind.STATE, ()))
    batch = double(pack([root]))
    mask_T = batch.action_T >= 0
    place_T = batch.token_T[mask_T]

    def tokens(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(len(batch)).masked_scatter(mask_T, x[place_T])

    def listed(x_T: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(place_T), dtype=torch.float64).index_put((place_T,), x_T[mask_T].double())

    # An episode ends with the last token of its leaf; the tree has its leaves depth first.
    last_token = {offset[i] + nodes[i]["len"] - 1: k for k, i in enumerate(case.inputs["leaves"])}
    leaf_L = torch.tensor([last_token[int(batch.token_T[row])] for row in batch.last_S[batch.leaf_L]])
    rewards = case.tensor("leaf_rewards")[leaf_L]
    batch = replace(batch, return_L=rewards, old_logp_T=tokens(case.tensor("old_log_prob")))

    for mode, expected in case.outputs["by_mode"].items():
        algorithm = GRPO(
            aggregation=mode,
            clip_low=case.hyper["clip"],
            clip_high=case.hyper["clip"],
            dual_clip=case.hyper["clip_ratio_c"],
        )
        logp = case.tensor("log_prob").requires_grad_()
        new = Forward(tokens(logp), torch.zeros(len(batch)))
        credit: Any = algorithm.credit(batch, new)
        total = algorithm.loss(batch, new, credit).total
        total.backward()
        slack = 0.0
        if mode == "seq-mean-token-mean":
            assert deviation(case, "length + 1e-8")
            slack = 1e-8 * (1 + abs(expected["loss"]))
        close(total, expected["loss"], case.tolerance + slack)
        close(logp.grad, expected["grad"], case.tolerance + slack)
        close(listed(credit.plus), expected["S_pos"], case.tolerance + slack)
        close(listed(credit.minus), expected["S_neg"], case.tolerance + slack)
        close(credit.adv_L, torch.tensor(case.outputs["leaf_advantages"], dtype=torch.float64)[leaf_L], case.tolerance)
        close(listed(credit.count), case.outputs["share_count"], case.tolerance)
        close(listed(batch.to_tokens(batch.below(credit.adv_L))), case.outputs["hard_advantage"], case.tolerance)
        clip = {"clip_low": case.hyper["clip"], "clip_high": case.hyper["clip"]}
        soft = ARPO(aggregation=mode, dual_clip=case.hyper["clip_ratio_c"], **clip)
        ours = soft.loss(batch, new, soft.credit(batch, new)).total
        close(ours, expected["loss"], case.tolerance + slack)
        hard = replace(soft, advantage="hard").credit(batch, new)
        weighted = listed(hard.weight_T) * torch.tensor(case.outputs["hard_advantage"], dtype=torch.float64)
        close(listed(hard.plus_T + hard.minus_T), weighted, case.tolerance)
        assert not bool((hard.plus_T * hard.minus_T).any()), "a token has one advantage"
