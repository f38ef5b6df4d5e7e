"""BabyAI in text: the view, its own bot as the expert from any state, levels."""

import sys

import numpy as np
import pytest

pytest.importorskip("minigrid")

from agent_envs.adapters.babyai import env as module
from agent_envs.adapters.babyai.config import BabyAIConfig
from agent_envs.adapters.babyai.env import ACTIONS, BabyAIEnv
from agent_envs.adapters.babyai.view import in_sight, place, view, wanted
from agent_envs.contract.check import check_text_env
from agent_envs.core import SettingsError

pytestmark = pytest.mark.adapters


def env_of(level: str = "GoToLocal", max_turns: int = 60) -> BabyAIEnv:
    return BabyAIEnv(BabyAIConfig(level, train_tasks=40, held_out_tasks=10, max_turns=max_turns))


@pytest.mark.parametrize("level", ["GoToRedBall", "PickupLoc", "OpenDoor", "PutNextLocal", "UnlockLocal"])
def test_levels_keep_the_contract(level: str) -> None:
    check_text_env(lambda: env_of(level))


def test_the_expert_is_right_after_anything_that_was_done() -> None:
    rng = np.random.default_rng(0)
    env = env_of()
    for number in range(20):
        env.reset(options={"task": env.tasks("train")[number]})
        asked = number % 2 == 0  # else the bot has to catch up
        for _ in range(int(rng.integers(8))):
            if asked:
                env.expert()
            if env.step(f"ACT({ACTIONS[int(rng.integers(3))]})")[2]:
                break
        over, info = env._over, {"success": True}
        while not over:
            before = (view(env._state.env.unwrapped), env._state.actions)
            action = env.expert()
            assert (view(env._state.env.unwrapped), env._state.actions) == before, "to ask changes nothing"
            _, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        assert info["success"], number


def test_the_view_tells_where_things_are() -> None:
    assert [place(2, -1), place(0, 3), place(1, 0)] == ["2 ahead 1 left", "3 right", "1 ahead"]
    env = env_of()
    env.reset(options={"task": env.tasks("train")[0]})
    world = env._state.env.unwrapped
    text = view(world)
    assert text == env.task.prompt and text.startswith(f"errand: {world.mission}\nahead: ")
    for ahead, right, thing in in_sight(*world.gen_obs_grid()):
        forward, side = np.array(world.dir_vec), np.array(world.right_vec)
        there = world.grid.get(*(np.array(world.agent_pos) + ahead * forward + right * side))
        assert (there.type, there.color) == (thing.type, thing.color)
        assert f"{thing.color} {thing.type}" in text
    assert wanted(world) in (*text.splitlines(), "")


def test_a_flawed_demonstrator_turns_to_the_other_side() -> None:
    env, rng = env_of(), np.random.default_rng(0)
    turned = {"left": "right", "right": "left"}
    seen = set()
    for number in range(20):
        env.reset(options={"task": env.tasks("train")[number]})
        action, flawed = (text.split("ACT(")[1].split(")")[0] for text in (env.expert(), env.expert(flaw=1.0, rng=rng)))
        assert flawed == turned.get(action, action)
        seen.add(action)
    assert {"left", "right", "forward"} <= seen


def test_where_the_bot_is_at_a_loss_it_is_done() -> None:
    env = env_of()
    env.reset(seed=0)

    class Lost:
        def replan(self, action: int) -> int:
            raise AssertionError("nothing left to explore")

    env.expert()
    env._state.advisor.bot = Lost()
    env.step("ACT(left)")
    assert "ACT(done)" in env.expert()


def test_what_is_missing_or_misspelt_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="no level 'GoToLocl'; did you mean GoToLocal"):
        env_of("GoToLocl").reset(seed=0)
    assert "there are left, right, forward" in (env := env_of()).reset(seed=0)[0] + env.step("ACT(jump)")[0]
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(SettingsError, match=r"pip install 'turnwise\[babyai\]'"):
        module._levels()
