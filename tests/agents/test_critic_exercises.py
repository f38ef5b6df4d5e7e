"""What the tiny model is asked at its critic prompts: of which states, and that it teaches the model itself."""

import math
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from transformers import PreTrainedModel

from agents.tiny.critic_exercises import PredictSuccess
from agents.tree import Kind, Node
from agents.tree.packing import pack

PROMPT = (3, 4)
WIDTH = 6
MODEL = cast(PreTrainedModel, SimpleNamespace(config=SimpleNamespace(hidden_size=WIDTH)))


def shown(success: bool | None, turns: int = 2) -> Node:
    root = state = Node(Kind.STATE, (9, 9))
    for turn in range(turns):
        last = turn == turns - 1
        state = state.add(Node(Kind.ACTION, (5,))).add(Node(Kind.STATE, (8,), success=success if last else None))
    return root


def test_every_state_of_a_demonstration_is_asked_and_none_of_an_exercise() -> None:
    batch = pack([shown(True), shown(None, turns=3), shown(False, turns=1)], PROMPT)
    hidden_TD = torch.randn(len(batch), WIDTH, generator=torch.Generator().manual_seed(0), requires_grad=True)
    predict = PredictSuccess(MODEL, seed=0)
    loss = predict(hidden_TD, batch)
    logit_S = predict.answer(hidden_TD[batch.critic_S])[:, 0].tolist()
    # Three states that lead to success, four of an exercise, two that lead to failure.
    wanted = [(x, 1) for x in logit_S[:3]] + [(x, 0) for x in logit_S[7:]]
    assert len(logit_S) == 9
    assert loss.item() == pytest.approx(sum(math.log1p(math.exp(-x if y else x)) for x, y in wanted) / 5, rel=1e-5)
    loss.backward()
    assert hidden_TD.grad is not None
    taught = set(hidden_TD.grad.abs().sum(1).nonzero().flatten().tolist())
    assert taught == set(batch.critic_S[[0, 1, 2, 7, 8]].tolist())


def test_the_oracle_is_told_apart_from_the_end() -> None:
    root = shown(None)
    root.oracle = 0.25
    batch = pack([root], PROMPT)
    hidden_TD = torch.randn(len(batch), WIDTH, generator=torch.Generator().manual_seed(0))
    predict = PredictSuccess(MODEL, seed=0)
    chance = predict.answer(hidden_TD[batch.critic_S[:1]])[0, 1].sigmoid().item()
    wanted = -0.25 * math.log(chance) - 0.75 * math.log(1 - chance)
    assert predict(hidden_TD, batch).item() == pytest.approx(wanted, rel=1e-5)


def test_without_a_demonstration_there_is_nothing_to_tell() -> None:
    batch = pack([shown(None)], PROMPT)
    assert PredictSuccess(MODEL, seed=0)(torch.ones(len(batch), WIDTH), batch).item() == 0


def test_its_weights_come_from_its_seed_and_leave_the_generator_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (PredictSuccess(MODEL, seed).answer[0].weight for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())
