"""ADCA-GRPO against AgentEvolver's functions: step rewards, advantages of steps and tokens, metrics."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from reference_cases import Case, cases, close, double
from reference_deviations import deviation
from torch import Tensor

from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack
from algorithms.adca import ADCA
from algorithms.formulas.attribution import Steps, path_matrix, standardised, suffix_sums

HYPER = (
    "consistent_scale",
    "pos_unconsistent_scale",
    "neg_unconsistent_scale",
    "do_batch_norm",
    "equal_trajectory_weight",
    "fix_base",
    "alpha",
    "orm_distribution",
    "enable_length_normalization",
)


def settings(case: Case, scheme: str) -> ADCA:
    """The case's algorithm; token-sum, so that what a token weighs is its advantage."""
    case.knows(*HYPER, "eps", "scheme")
    assert case.hyper["eps"] == 1e-8
    options: dict[str, Any] = {name: case.hyper[name] for name in HYPER}
    if deviation(case, "length normalisation under allocation"):
        options["enable_length_normalization"] = False
    return ADCA(prm_scheme=scheme, aggregation="token-sum", **options)


def matrix(rows: list[list[Any]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The rows padded with 0, and where they are not."""
    longest = max(map(len, rows))
    said = torch.tensor([[k < len(row) for k in range(longest)] for row in rows])
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=dtype), said


def aligned(case: Case, lengths: list[int], scheme: str, success: list[bool]) -> list[list[bool]]:
    """The peer's flags: cut to the number of steps, or filled up with GOOD (allocation: with the outcome)."""
    flags = case.inputs["step_flags"] + [[]] * (len(lengths) - len(case.inputs["step_flags"]))
    short = any(len(f) != n for f, n in zip(flags, lengths, strict=True))
    assert deviation(case, "labels that are not one per step") is short
    fill = success if scheme == "allocation" else [True] * len(lengths)
    return [(f + [s] * n)[:n] for f, n, s in zip(flags, lengths, fill, strict=True)]


def tree_of(case: Case, flags: list[list[bool | None]], returns: Tensor) -> tuple[Batch, Tensor, Tensor]:
    """(batch, row_L, place_T): a chain per row below its group's root; a token's place in the padded matrix."""
    step_ids = case.inputs["step_ids"]
    columns = max(map(len, step_ids))
    roots: dict[int, Node] = {}
    for row, ids in enumerate(step_ids):
        state = root = roots.setdefault(case.inputs["group_ids"][row], Node(Kind.STATE, (-1,)))
        action = root
        for column, step in enumerate(ids):
            place = row * columns + column
            if step >= 0 and ids[:column].count(step):  # a step is one run of tokens, whatever was read in between
                action.tokens += (place,)
            elif step >= 0:
                action = state.add(Node(Kind.ACTION, (place,), label=flags[row][step]))
                state = action.add(Node(Kind.STATE, ()))
        if state is not root:
            state.terminated, state.success = True, bool(returns[row] > 0.5)
    batch = double(pack(list(roots.values())))
    row_L = batch.token_T[batch.last_S[batch.leaf_L]] // columns
    return replace(batch, return_L=returns[row_L]), row_L, batch.token_T


def token_matrix(case: Case, batch: Batch, x_T: Tensor) -> Tensor:
    mask_T = batch.action_T >= 0
    rows, columns = len(case.inputs["step_ids"]), max(map(len, case.inputs["step_ids"]))
    flat = torch.zeros(rows * columns, dtype=torch.float64)
    return flat.index_put((batch.token_T[mask_T],), x_T[mask_T].double()).reshape(rows, columns)


def lengths_of(case: Case) -> list[int]:
    return [max(ids) + 1 for ids in case.inputs["step_ids"]]


def check_scheme(case: Case, scheme: str, prefix: str) -> None:
    algorithm = settings(case, scheme)
    returns, lengths = case.tensor("orm_scores"), lengths_of(case)
    success = (returns > 0.5).tolist()
    flags = aligned(case, lengths, scheme, success)
    good_LK, said_LK = matrix(flags, torch.bool)
    n = len(flags)
    _, tree_L = torch.unique(torch.tensor(case.inputs["group_ids"]), return_inverse=True)
    steps = Steps(
        said_LK,
        good_LK,
        torch.ones(n, dtype=torch.bool),
        returns,
        returns > 0.5,
        torch.ones(n, dtype=torch.long),
        tree_L,
        int(tree_L.max()) + 1,
    )
    c_LK, stats = replace(algorithm, suffix=False).step_advantages(steps, algorithm.alpha)
    adv_LK, _ = algorithm.step_advantages(steps, algorithm.alpha)
    for name, ours in (("step_rewards", c_LK), ("step_advantages", adv_LK)):
        theirs, _ = matrix(case.outputs[name], torch.float64)
        close(ours, theirs, case.tolerance)

    for name, theirs in case.outputs["metrics"].items():
        ours = stats[name.removeprefix(prefix)]
        if name.endswith("alpha_effective") and deviation(case, "a ratio to nothing"):
            assert ours <= 100
        elif name.endswith("sign_agree") and deviation(case, "the sign of a sum of zero"):
            continue
        else:
            close(ours, theirs, case.tolerance)

    if deviation(case, "episodes without a step"):
        return
    batch, _, _ = tree_of(case, [list(f) for f in flags], returns)
    credit = algorithm.credit(batch, Forward(batch.old_logp_T, batch.old_logp_T))
    close(token_matrix(case, batch, credit.plus_T + credit.minus_T), case.outputs["token_advantages"], case.tolerance)


@cases("adca_decouple")
def test_decouple(case: Case) -> None:
    check_scheme(case, "decouple", "prm/decouple/")


@cases("adca_allocation")
def test_allocation(case: Case) -> None:
    check_scheme(case, "allocation", "prm_allocation/")


def interleaved(case: Case) -> Case:
    """The same episodes in an order in which the groups take turns."""
    groups = case.inputs["group_ids"]
    order = sorted(range(len(groups)), key=lambda row: (groups[:row].count(groups[row]), groups[row]))

    def moved(columns: dict[str, Any]) -> dict[str, Any]:
        per_row = {k: x for k, x in columns.items() if isinstance(x, list) and len(x) == len(groups)}
        return columns | {name: [x[row] for row in order] for name, x in per_row.items()}

    return replace(case, inputs=moved(case.inputs), outputs=moved(case.outputs))


@pytest.mark.parametrize("scheme", ["decouple", "allocation"])
def test_groups_may_interleave(scheme: str) -> None:
    tried = 0
    for case in (param.values[0] for param in cases(f"adca_{scheme}").args[1]):
        other = interleaved(case)
        if len(case.inputs["step_flags"]) == len(case.inputs["group_ids"]) and other != case:
            tried += 1
            check_scheme(other, scheme, {"decouple": "prm/decouple/", "allocation": "prm_allocation/"}[scheme])
    assert tried


@cases("adca_decouple")
def test_a_missing_label_takes_the_episode_out(case: Case) -> None:
    """Where the peer fills up with GOOD: ours is the outcome alone, and the others are standardised without it."""
    if not deviation(case, "labels that are not one per step"):
        return
    lengths, returns = lengths_of(case), case.tensor("orm_scores")
    given = case.inputs["step_flags"] + [[]] * (len(lengths) - len(case.inputs["step_flags"]))
    flags: list[list[bool | None]] = [([*f] + [None] * n)[:n] for f, n in zip(given, lengths, strict=True)]
    batch, row_L, _ = tree_of(case, flags, returns)
    algorithm = settings(case, "decouple")
    credit = algorithm.credit(batch, Forward(batch.old_logp_T, batch.old_logp_T))
    blank = [row for row, f in enumerate(flags) if None in f]
    assert blank and credit.stats["unjudged"] == len(blank) / len(flags)
    ours = token_matrix(case, batch, credit.plus_T + credit.minus_T)
    outcome = (returns - returns.mean()) / returns.std(correction=0)
    for row in blank:
        said = torch.tensor(case.inputs["step_ids"][row]) >= 0
        close(ours[row], outcome[row] * said, 1e-9)
    assert (ours - torch.tensor(case.outputs["token_advantages"], dtype=torch.float64)).abs().max() > 1e-2
    assert sorted(row_L.tolist()) == list(range(len(flags)))


@cases("adca_group_zscore")
def test_group_zscore(case: Case) -> None:
    settings(case, "decouple")
    x_LK, said_LK = matrix(case.inputs["step_rewards_raw"], torch.float64)
    n = len(x_LK)
    zeros, ones = torch.zeros(n), torch.ones(n)
    tree_L = torch.tensor(case.inputs["group_ids"])
    steps = Steps(said_LK, said_LK, ones.bool(), zeros, zeros.bool(), ones.long(), tree_L, int(tree_L.max()) + 1)
    ours = standardised(x_LK, steps, case.hyper["equal_trajectory_weight"]) if case.hyper["do_batch_norm"] else x_LK
    theirs, _ = matrix(case.outputs["step_rewards_std"], torch.float64)
    close(ours, theirs, case.tolerance)


@cases("adca_suffix_broadcast")
def test_suffix_and_broadcast(case: Case) -> None:
    rewards, lengths = case.inputs["step_rewards"], lengths_of(case)
    assert lengths == case.outputs["num_steps"]
    case = replace(case, inputs=case.inputs | {"group_ids": [0] * len(rewards)})
    batch, row_L, _ = tree_of(case, [[None] * n for n in lengths], torch.zeros(len(rewards)))
    action_LK = path_matrix(batch)
    said_LK = action_LK >= 0
    c_LK, _ = matrix([rewards[row] for row in row_L], torch.float64)
    adv_LK = suffix_sums(c_LK, said_LK)
    theirs, _ = matrix([case.outputs["step_advantages"][row] for row in row_L], torch.float64)
    close(adv_LK, theirs, case.tolerance)
    adv_A = torch.zeros(len(batch.state_A), dtype=torch.float64).index_put((action_LK[said_LK],), adv_LK[said_LK])
    close(token_matrix(case, batch, batch.to_tokens(adv_A)), case.outputs["token_advantages"], case.tolerance)


@cases("adca_entry")
def test_entry(case: Case) -> None:
    length = case.inputs["response_length"]
    returns = case.tensor("token_level_rewards").sum(-1)
    close(returns, case.outputs["orm_scores"], case.tolerance)
    if any(len(ids) != length for ids in case.inputs["step_ids"]):
        assert deviation(case, "step ids of another length")
        ids = [(ids + [-1] * length)[:length] for ids in case.inputs["step_ids"]]
        case = replace(case, inputs=case.inputs | {"step_ids": ids})
    flags = aligned(case, lengths_of(case), "decouple", [])
    batch, _, _ = tree_of(case, [list(f) for f in flags], returns)
    algorithm = settings(case, case.hyper["scheme"] or "decouple")
    credit = algorithm.credit(batch, Forward(batch.old_logp_T, batch.old_logp_T))
    close(token_matrix(case, batch, credit.plus_T + credit.minus_T), case.outputs["advantages"], case.tolerance)
    for name, theirs in case.outputs["metrics"].items():
        close(credit.stats[name.rpartition("/")[2]], theirs, case.tolerance)
