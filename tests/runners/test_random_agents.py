"""Random agents draw from all turns that are valid, and from no others."""

from collections import Counter

import numpy as np
import pytest
from env_packages import named, skip_without

from agent_envs import registry
from agent_envs.core import SettingsError, TextEnv
from runners.evaluation.random_agents import random_agent, valid_turn

LISTING = ("babyai", "corridor", "gym", "household", "identity", "puzzle", "textworld")


def begun(name: str) -> TextEnv:
    skip_without(name)
    env = registry.make(name)
    env.reset(seed=0, options={"split": "test"})
    return env


@pytest.mark.parametrize("name", named(LISTING))
def test_every_turn_that_is_listed_is_accepted(name: str) -> None:
    """On the way, too: a state is walked on with one of them."""
    env, rng = begun(name), np.random.default_rng(0)
    for _ in range(4):
        turns = env.valid_turns()
        assert len(turns) == len(set(turns)) >= 1
        for turn in turns:
            assert not env.fork().step(turn)[4]["invalid"], turn
        *_, terminated, truncated, _ = env.step(turns[int(rng.integers(len(turns)))])
        if terminated or truncated:
            break


@pytest.mark.parametrize("name", named(LISTING))
def test_another_turn_is_not_accepted(name: str) -> None:
    if name == "identity":
        pytest.skip("it takes any word")
    env = begun(name)
    verb = env.valid_turns()[0].partition("(")[0]
    assert env.step(f"{verb}(nothing of the kind)</action>")[4]["invalid"]


def test_all_of_them_are_drawn_alike() -> None:
    env, rng = begun("corridor"), np.random.default_rng(0)
    drawn = Counter(valid_turn(env, rng) for _ in range(4000))
    expected = 4000 / len(env.valid_turns())
    assert set(drawn) == set(env.valid_turns())
    assert all(abs(n - expected) < 5 * expected**0.5 for n in drawn.values())


def test_where_none_are_listed_it_is_said() -> None:
    env = begun("wiki")
    assert not env.valid_turns()
    with pytest.raises(SettingsError, match="wiki has no random agent: it does not list its valid turns"):
        valid_turn(env, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["code", "math", "reasoning_gym", "research", "wiki"])
def test_free_text_has_an_agent_of_its_own(name: str) -> None:
    if name == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    env = begun(name)
    first = [random_agent(env, np.random.default_rng(seed)) for seed in (0, 0, 1, 2, 3)]
    turns = []
    for agent in first:
        agent.begin(env.task)
        turns.append([agent.act("") for _ in range(3)])
    assert turns[0] == turns[1]
    assert not env.step(turns[0][0])[4]["invalid"]
    if name != "code":  # whose first turn is a look at the file
        assert len({tuple(turn) for turn in turns}) > 1
