"""GiGPO against its authors' functions: one row of their matrices is one turn."""

from dataclasses import replace
from typing import Any

import torch
from reference_cases import Case, cases, close, double
from reference_deviations import deviation
from torch import Tensor

from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack
from algorithms.formulas.returns import TurnRows
from algorithms.gigpo import GiGPO


def chains(trajectory: list[str], rewards: list[float], anchors: list[Any]) -> tuple[Batch, Tensor]:
    """Each trajectory a tree of its own, and row_A: the row that every action came from."""
    roots: dict[str, Node] = {}
    ends: dict[str, Node] = {}
    for row, name in enumerate(trajectory):
        state = ends.get(name) or roots.setdefault(name, Node(Kind.STATE, (len(rewards),)))
        state.anchor = str(anchors[row])
        ends[name] = state.add(Node(Kind.ACTION, (row,))).add(Node(Kind.STATE, ()))
    batch = double(pack(list(roots.values())))
    row_A = batch.token_T[batch.action_T >= 0]
    return replace(batch, reward_A=torch.tensor(rewards, dtype=torch.float64)[row_A]), row_A


def advantages(case: Case, **settings: Any) -> Tensor:
    """adv_B: what GiGPO makes of each row."""
    given, score_B = case.inputs, case.tensor("token_level_rewards").sum(-1)
    similar = deviation(case, "similar observations")
    anchors = case.outputs["step_group"] if similar else given["anchor_obs"]
    batch, row_A = chains(given["traj_index"], given["step_rewards"], anchors)
    group_A = torch.tensor([sorted(set(map(str, given["index"]))).index(str(g)) for g in given["index"]])[row_A]
    first_A = torch.nonzero(batch.prev_S[batch.state_A] < 0).flatten()
    score_L = score_B[row_A][first_A]
    assert torch.equal(batch.to_tokens(batch.below(score_L))[batch.action_T >= 0], score_B[row_A]), "one score each"
    # Trajectories of one task are one tree to us.
    last_S = torch.zeros_like(batch.tree_S).index_put((batch.next_A,), group_A)
    batch = replace(
        batch,
        return_L=score_L,
        tree_L=group_A[first_A],
        tree_S=last_S.index_put((batch.state_A,), group_A),
    )
    algorithm = GiGPO(norm=case.hyper["mode"], std_eps=case.hyper["epsilon"], discount=0.0, **settings)
    adv_A = algorithm.credit(batch, Forward(batch.old_logp_T, batch.old_logp_T)).adv_A
    return torch.zeros_like(score_B).index_put((row_A,), adv_A)


def compare(case: Case, ours_B: Tensor, name: str, groups: list[list[float]]) -> list[bool]:
    """Row by row, given the numbers of each row's group; True where they agree, False where ours is 0 on purpose."""
    mask, agree = case.tensor("response_mask"), []
    for row, group in enumerate(groups):
        alone = len(group) == 1 and name != "step_advantages" and deviation(case, "a turn or trajectory alone")
        same = max(group) - min(group) <= 1e-8 and deviation(case, "noise of equal returns")
        if alone or same:
            assert ours_B[row].abs() < 1e-12
        else:
            close(ours_B[row] * mask[row], case.outputs[name][row], case.tolerance)
        agree.append(not alone and not same)
    return agree


@cases("gigpo")
def test_gigpo(case: Case) -> None:
    case.knows("mode", "step_advantage_w", "epsilon", "enable_similarity", "similarity_thresh")
    given, score = case.inputs, case.tensor("token_level_rewards").sum(-1).tolist()
    rows = list(zip(given["index"], case.outputs["step_group"], given["traj_index"], score, strict=True))
    of_task = [[s for i, _, _, s in rows if i == index] for index, *_ in rows]
    of_state = [
        [x for (i, g, *_), x in zip(rows, given["step_rewards"], strict=True) if (i, g) == (index, state)]
        for index, state, *_ in rows
    ]
    of_task_once = [list({t: s for i, _, t, s in rows if i == index}.values()) for index, *_ in rows]

    omega = case.hyper["step_advantage_w"]
    whole, episode = advantages(case, omega=omega), advantages(case, omega=0.0)
    agree = compare(case, episode, "episode_advantages", of_task)
    once = advantages(case, omega=0.0, statistics="episodes")
    compare(case, once, "episode_advantages_per_trajectory", of_task_once)
    steps = compare(case, advantages(case, omega=1.0) - episode, "step_advantages", of_state)
    theirs = [row for row, both in enumerate(zip(agree, steps, strict=True)) if all(both)]
    mask, expected = case.tensor("response_mask"), torch.tensor(case.outputs["advantages"], dtype=torch.float64)
    close((whole[:, None] * mask)[theirs], expected[theirs], case.tolerance)


@cases("gigpo_step_returns")
def test_step_returns(case: Case) -> None:
    case.knows("gamma")
    rewards = case.inputs["rewards"]
    batch, row_A = chains(case.inputs["traj_uid"], rewards, [""] * len(rewards))
    rows = TurnRows.of(batch, batch.count_L)
    return_P = rows.rest(batch.reward_A[rows.action_P], case.hyper["gamma"])
    case.expect(torch.zeros_like(return_P).index_put((row_A[rows.action_P],), return_P))
