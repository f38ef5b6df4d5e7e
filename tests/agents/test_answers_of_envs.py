"""What an environment answers is checked before it is trained on: its own faults are nobody's reward."""

import math
from typing import Any

import pytest
from rollout_cases import CHAT, engine, jobs

from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.faults import FaultKind
from agents.rollout.play import rollout
from agents.rollout.settings import FaultSettings, ReActSettings


def answering(reward: float | None = None, **changed: Any) -> type[IdentityEnv]:
    """The environment with another reward, or with its last info changed; None takes an entry out."""

    class Answering(IdentityEnv):
        def step(self, action: str) -> Any:
            seen, paid, terminated, truncated, info = super().step(action)
            if terminated or truncated:
                info = {name: value for name, value in {**info, **changed}.items() if value is not None}
            return seen, paid if reward is None else reward, terminated, truncated, info

    return Answering


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (answering(success="maybe"), "info['success'] must be True or False at the end, not 'maybe'"),
        (answering(success=1), "info['success'] must be True or False at the end, not 1"),
        (answering(success=None), "info['success'] must be True or False at the end, not None"),
        (answering(metrics=[1.0]), "info['metrics'] must hold finite numbers by name, not [1.0]"),
        (answering(metrics={"words": "two"}), "info['metrics'] must hold finite numbers by name"),
        (answering(metrics={"words": math.nan}), "info['metrics'] must hold finite numbers by name"),
        (answering(metrics={1: 1.0}), "info['metrics'] must hold finite numbers by name"),
        (answering(reward=1e39), "the reward 1e+39 is not a finite float32"),
        (answering(reward=-math.inf), "the reward -inf is not a finite float32"),
        (answering(reward=math.nan), "the reward nan is not a finite float32"),
    ],
)
def test_an_answer_that_makes_no_sense_is_a_fault_of_the_environment(env: type[IdentityEnv], says: str) -> None:
    played = rollout(env, engine(), CHAT, jobs(2), ReActSettings(), faults=FaultSettings(retries=1))
    assert not played.episodes and [fault.kind for fault in played.faults] == [FaultKind.GARBAGE] * 4
    assert all(says in str(fault) for fault in played.faults)


@pytest.mark.parametrize("env", [answering(), answering(metrics={"words": 2, "share": 0.5}), answering(reward=3e38)])
def test_one_that_makes_sense_is_played(env: type[IdentityEnv]) -> None:
    played = rollout(env, engine(), CHAT, jobs(2), ReActSettings())
    assert len(played.episodes) == 2 and not played.faults
