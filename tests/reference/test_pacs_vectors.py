"""PACS against its authors' functions: scores, logits, weights, loss and gradient."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from reference_cases import FOLDER, Case, Padded, cases, close
from reference_deviations import deviation
from torch import Tensor

from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack
from algorithms.pacs import PACS, LabelCredit

HYPER = (
    "beta",
    "reward_method",
    "adv_estimator",
    "norm_adv_by_std_in_grpo",
    "use_weight",
    "weight_mode",
    "rollout_n",
)


def settings(case: Case) -> dict[str, Any]:
    case.knows(*HYPER)
    return {
        "group": case.hyper["rollout_n"],
        "beta": case.hyper["beta"],
        "reward_method": {"1": "log_ratio", "2": "mean_logp"}[case.hyper["reward_method"]],
        "estimator": case.hyper["adv_estimator"],
        "spread": "source" if case.hyper["norm_adv_by_std_in_grpo"] else "none",
        "weight": case.hyper["weight_mode"] if case.hyper["use_weight"] else "none",
    }


def set_up(case: Case, algorithm: PACS) -> tuple[Padded, Tensor, Batch, Forward, LabelCredit]:
    mask, n = case.tensor("response_mask"), case.hyper["rollout_n"]
    padded = Padded.of(mask, [row // n for row in range(len(mask))])
    logp = case.tensor("log_prob").requires_grad_()
    batch, new = padded.forward(logp, case.tensor("old_log_prob"))
    label_L = case.tensor("labels")[padded.rows()]
    credit = algorithm.credit(replace(batch, success_L=(label_L == 1).long()), new)
    return padded, logp, batch, new, replace(credit, label_L=label_L)


def expected_gradient(case: Case) -> Tensor:
    """The peer's gradient where something was said; off the mask ours is 0."""
    theirs, mask = torch.tensor(case.outputs["grad_log_prob"], dtype=torch.float64), case.tensor("response_mask")
    assert deviation(case, "sums over padding") is bool(theirs[mask == 0].any())
    return theirs * mask


@cases("pacs_loss")
def test_pacs(case: Case) -> None:
    if deviation(case, "PACS alone in its group"):
        assert all(math.isnan(x) for x in case.outputs["advantage"])
        with pytest.raises(ValueError, match="needs a group of at least 2"):
            PACS(**settings(case))
        algorithm = PACS(**settings(case) | {"group": 2})
        _, logp, batch, new, credit = set_up(case, algorithm)
        loss = algorithm.loss(batch, new, credit).total
        loss.backward()
        assert loss == 0 and not logp.grad.any()
        return
    algorithm = PACS(**settings(case))
    padded, logp, batch, new, credit = set_up(case, algorithm)
    row_L = padded.rows()

    def rows(name: str) -> Tensor:
        return torch.tensor(case.outputs[name], dtype=torch.float64)[row_L]

    score_L = algorithm.score(batch, new.logp_T, credit)
    close(score_L, rows("reward"), case.tolerance)
    close(algorithm.logit(batch, score_L, credit), rows("advantage"), case.tolerance)
    if case.outputs["weight"] is not None:
        close(credit.weight_L, rows("weight"), case.tolerance)
    loss = algorithm.loss(batch, new, credit).total
    loss.backward()
    case.expect(loss, "loss")
    close(logp.grad, expected_gradient(case), case.tolerance)
    deviation(case, "labels that are no verdict")  # the formula agrees; `credit` makes no such label


@cases("pacs_loss")
def test_the_floor_keeps_the_first_step_small(case: Case) -> None:
    """The default in place of the source's deviation, where that makes a gradient of a million."""
    if case.id != "first_step_grpo_zero_std":
        return
    _, logp, batch, new, credit = set_up(case, PACS(**settings(case) | {"spread": "floor"}))
    PACS(**settings(case) | {"spread": "floor"}).loss(batch, new, credit).total.backward()
    source = expected_gradient(case)
    assert source.abs().max() > 1e4
    close(logp.grad, source * 1e-6 / 1e-2, case.tolerance)


@pytest.mark.parametrize("prompts", [None, [[1], [2], [1], [2]], [[3], [3], [3], [4], [4]]])
def test_a_tree_is_a_group(prompts: list[list[int]] | None) -> None:
    """The peer asserts that equal prompts lie side by side; here a prompt is a tree, and its episodes its leaves.

    None: as in the file. The peer ends a run with the others.
    """
    (case,) = (c for c in json.loads((FOLDER / "pacs_grouping.json").read_text())["cases"] if c["outputs"] == "ok")
    of_file = Case("pacs_grouping", "apart", {}, {}, "AssertionError", 0.0)
    assert deviation(of_file, "rows of a group apart")
    prompts = prompts or case["inputs"]["prompts"]
    roots: dict[tuple[int, ...], Node] = {}
    for row, prompt in enumerate(prompts):
        root = roots.setdefault(tuple(prompt), Node(Kind.STATE, tuple(prompt)))
        root.add(Node(Kind.ACTION, (100 + row,))).add(Node(Kind.STATE, (), success=row % 2 == 0))
    batch = pack(list(roots.values()))
    assert [batch.tree_L.tolist().count(i) for i in range(len(roots))] == [
        prompts.count(list(prompt)) for prompt in roots
    ]
    algorithm = PACS()
    logp_T = torch.arange(len(batch), dtype=torch.float64)
    credit = algorithm.credit(batch, Forward(logp_T, logp_T))
    logit_L = algorithm.logit(batch, algorithm.score(batch, logp_T, credit), credit)
    for i in range(len(roots)):
        assert abs(logit_L[batch.tree_L == i].sum()) < 1e-9 and logit_L[batch.tree_L == i].any()
