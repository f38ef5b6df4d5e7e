"""Any Gymnasium environment as text: what it shows, which actions it takes, what counts as a success, forks."""

from typing import Any

import gym_cases
import numpy as np
import pytest
from gymnasium import spaces

from agent_envs.actions import ActionError
from agent_envs.adapters.gym.config import GymConfig, GymReward, GymView
from agent_envs.adapters.gym.env import GymEnv
from agent_envs.adapters.spaces import action_of, check_actions, check_readable, form_of, text_of
from agent_envs.contract.check import ContractError, check_text_env
from agent_envs.core import BackendUnavailable, SettingsError

COUNT = "turnwise_tests/Count-v0"


def env_of(id: str = COUNT, **settings: Any) -> GymEnv:
    return GymEnv(GymConfig(id=id, train_tasks=40, held_out_tasks=10, **settings))


@pytest.mark.parametrize(
    "space, value, text",
    [
        (spaces.Discrete(5), np.int64(3), "3"),
        (spaces.Text(9), "any\nthing", "any\nthing"),
        (spaces.Box(-1, 1, (2,), np.float32), np.array([0.25, -1], np.float32), "0.25 -1"),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), np.array([[1, 2], [3, 4]]), "1 2\n3 4"),
        (spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(3))), (1, np.array([0, 1, 1])), "1\n0 1 1"),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary([2, 1])), {"a": 1, "b": [[0], [1]]}, "a: 1\nb:\n0\n1"),
    ],
)
def test_values_as_text(space: spaces.Space[Any], value: Any, text: str) -> None:
    check_readable(space, "it")
    assert text_of(space, value) == text


@pytest.mark.parametrize(
    "space, text, value",
    [
        (spaces.Discrete(3, start=4), "Up", 5),
        (spaces.Text(9, charset="say thi"), "say this", "say this"),
        (spaces.Box(-2, 2, (1,), np.float32), "[0.5]", np.array([0.5], np.float32)),
        (spaces.MultiDiscrete([2, 3]), "[1, 2]", np.array([1, 2])),
        (spaces.MultiBinary(2), "[1, 0]", np.array([1, 0])),
    ],
)
def test_text_as_actions(space: spaces.Space[Any], text: str, value: Any) -> None:
    check_actions(space, "it")
    found = action_of(space, text, ("left", "up", "down"))
    assert np.array_equal(found, value) and space.contains(found)


@pytest.mark.parametrize(
    "space, text",
    [
        (spaces.MultiDiscrete([2, 3]), "[0.9, 1.9]"),
        (spaces.MultiBinary(2), "[0.5, true]"),
        (spaces.Box(0, 9, (1,), np.int64), "[2.5]"),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), "[Infinity]"),
    ],
)
def test_no_number_is_rounded_to_an_action(space: spaces.Space[Any], text: str) -> None:
    with pytest.raises(ActionError, match="an action is a JSON list"):
        action_of(space, text, ())


def test_whole_numbers_have_their_own_start() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[1, -1])
    assert form_of(space) == "a JSON list of whole numbers from 1 -1, each below 3 2"
    assert action_of(space, "[2, 1]", ()).tolist() == [2, 1]


@pytest.mark.parametrize("text", ["", "3", "[3]", "[0.5, 0.5]", "[NaN]", "[1e999]", "x", "[" * 5000, "[[0.5]]", "null"])
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ActionError, match=r"an action is a JSON list of 1 numbers from -2 to 2"):
        action_of(spaces.Box(-2, 2, (1,), np.float32), text, ())
    with pytest.raises(ActionError, match="a text of 2 to 4 of the characters abc"):
        action_of(spaces.Text(4, min_length=2, charset="cba"), text, ())
    with pytest.raises(ActionError, match="there are left, right"):
        action_of(spaces.Discrete(2), text, ("left", "right"))


@pytest.mark.parametrize(
    "id", ["FrozenLake-v1", "Blackjack-v1", "CartPole-v1", "Pendulum-v1", "CliffWalking-v1", COUNT]
)
def test_environments_of_others_keep_the_contract(id: str) -> None:
    check_text_env(lambda: env_of(id))
    check_text_env(env_of(id), tasks=1)


def test_what_cannot_be_copied_is_played_again() -> None:
    check_text_env(lambda: env_of("turnwise_tests/Handle-v0"))
    env = env_of("turnwise_tests/Restless-v0")
    env.reset(seed=0)
    env.step("ACT(1)")
    with pytest.raises(BackendUnavailable, match=r"turnwise_tests/Restless-v0: .* cannot be forked"):
        env.fork()
    with pytest.raises(ContractError):
        check_text_env(lambda: env_of("turnwise_tests/Restless-v0"))


def test_what_the_agent_reads() -> None:
    env = env_of(actions=("back", "on"))
    prompt, _ = env.reset(options={"task": f"{COUNT}-test-3"})
    assert prompt.startswith("at: ") and prompt.endswith(" 0.5\ngoal: 3\nnote: go on")
    assert (
        "Count to a number.\nAn action is one of back, on." in env.system_prompt()
        and "people" not in env.system_prompt()
    )
    text, reward, over, truncated, _ = env.step("ACT(on)")
    assert "goal: 3" in text and (reward, over, truncated) == (-1.0, False, False)
    assert "there are back, on" in env.step("ACT(off)")[0]
    described = env_of(describe="gym_cases:in_words", goal="Get there.")
    assert described.reset(seed=1)[0].startswith("you are at ") and "Get there.\nAn action" in described.system_prompt()
    lake = env_of("FrozenLake-v1")
    assert lake.reset(seed=0)[0].startswith("[S]FFF\nFHFH\n") and "\x1b" not in lake.step("ACT(2)")[0]
    assert env_of("FrozenLake-v1", view=GymView.OBSERVATION).reset(seed=0)[0] == "0"


def played(env: GymEnv, action: str) -> tuple[float, bool | None, int]:
    """(rewards, success, turns) of an episode with this action only."""
    env.reset(options={"task": env.tasks("valid")[0]})
    total, turns = 0.0, 0
    while True:
        _, reward, over, truncated, info = env.step(action)
        total, turns = total + reward, turns + 1
        if over or truncated:
            return total, info["success"], turns


def test_what_counts_as_a_success() -> None:
    assert played(env_of(), "ACT(1)")[:2] == (-3.0, False), "its rewards are below 0"
    assert played(env_of(success=-5.0), "ACT(1)")[:2] == (-3.0, True)
    assert played(env_of(success=-2.0), "ACT(1)")[:2] == (-3.0, False)
    assert played(env_of(options='{"flag": true}'), "ACT(1)")[:2] == (-3.0, True), "it says so itself"
    assert played(env_of(options='{"flag": true}', outcome=GymReward.SUCCESS), "ACT(1)")[:2] == (1.0, True)
    assert played(env_of(), "ACT(0)") == (-9.0, False, 9), "its own time limit"
    assert played(env_of(max_turns=4), "ACT(0)") == (-4.0, False, 4)
    assert played(env_of("CartPole-v1", success=5), "ACT(1)")[1] is True


def test_an_expert_can_be_named() -> None:
    assert not env_of().has_expert
    with pytest.raises(SettingsError, match="gym has no scripted expert: name a function with --gym"):
        env_of().expert()
    env = env_of(expert="gym_cases:forward", options='{"flag": true}')
    check_text_env(lambda: env_of(expert="gym_cases:forward", options='{"flag": true}', outcome=GymReward.SUCCESS))
    env.reset(seed=0)
    assert env.has_expert and env.expert() == "<think></think><action>ACT(1)</action>"
    rng = np.random.default_rng(0)
    assert len({env.expert(flaw=1.0, rng=rng) for _ in range(20)}) == 2


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"id": "Nowhere-v0"}, "Nowhere-v0 cannot be made: .*Nowhere"),
        ({"id": "no_such_module:X-v0"}, "cannot be made"),
        ({"options": '{"size": 8}'}, "cannot be made: TypeError"),
        (
            {"id": "turnwise_tests/Picture-v0"},
            "its observations are 12,288 numbers: name a function with --gym.describe",
        ),
        ({"view": GymView.ANSI}, "draws no picture in text: leave out --gym.view ansi"),
        ({"actions": ("a", "b", "c")}, "has 2 actions, and --gym.actions names 3"),
        ({"describe": "gym_cases:nothing"}, "there is no gym_cases:nothing"),
        ({"describe": "gym_cases"}, "name a function as module:function"),
        ({"describe": "gym_cases:NOT_A_FUNCTION"}, "is no function"),
        ({"describe": "./view.py:text"}, "TypeError.*name a function as module:function"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        env = env_of(**settings)
        env.reset(seed=0)
        env.step("ACT(1)")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"options": "{"}, "options is no JSON object"),
        ({"options": "[1]"}, "options must be a JSON object"),
        ({"actions": ("a", "A")}, "two actions have the same name"),
        ({"describe": "a:b", "view": GymView.ANSI}, "view has no effect with describe"),
        ({"train_tasks": 0}, "train_tasks"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        GymConfig(**settings)


def test_the_cases_are_what_they_say() -> None:
    assert gym_cases.forward(gym_cases.Count()) == 1
