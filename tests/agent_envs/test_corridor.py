"""The corridor, in literal episodes, and its oracle against played-out chances."""

import numpy as np
import pytest

from agent_envs import SettingsError
from agent_envs.contract.check import check_text_env
from agent_envs.corridor.config import CorridorConfig
from agent_envs.corridor.env import CorridorEnv
from agent_envs.corridor.reward import chances
from agent_envs.corridor.tasks import handles_of

SHORT = CorridorConfig(doors=3, pulls=5, max_turns=7, signs=12)


@pytest.mark.parametrize("config", [CorridorConfig(), SHORT])
def test_contract(config: CorridorConfig) -> None:
    check_text_env(lambda: CorridorEnv(config))


def right_handle(config: CorridorConfig, sign: str) -> str:
    return handles_of(config)[sign][0]


def mistaken_handle(config: CorridorConfig, sign: str) -> str:
    return handles_of(config)[sign][1]


def with_signs(env: CorridorEnv, blanks: tuple[bool, ...]) -> tuple[str, ...]:
    """Resets ``env`` to its first training task whose doors without a sign are ``blanks``; returns the signs."""
    task = next(task for task in env.tasks("train") if tuple(not sign for sign in task.data) == blanks)
    env.reset(options={"task": task, "oracle": True})
    return task.data


def test_an_episode() -> None:
    env = CorridorEnv(SHORT)
    one, _, three = with_signs(env, (False, True, False))
    assert env.task.prompt == f"sign: {one}, door 1 of 3, 5 pulls left"
    wrong = mistaken_handle(SHORT, one)
    assert wrong != right_handle(SHORT, one)
    text, reward, *_ = env.step(f"PULL({wrong})")
    assert (text, reward) == (f"sign: {one}, door 1 of 3, 4 pulls left", 0)
    assert env.step(f"PULL({right_handle(SHORT, one).upper()})")[0] == "no sign, door 2 of 3, 3 pulls left"
    assert env.step("PULL(red)")[0] == f"sign: {three}, door 3 of 3, 2 pulls left"
    text, reward, terminated, truncated, info = env.step(f"PULL({right_handle(SHORT, three)})")
    assert (text, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info["success"] is True and info["metrics"] == {"invalid": 0.0, "doors": 1.0, "back": 1.0}
    assert info["oracle"] == 1.0


def test_a_wrong_handle_leads_back_a_door_and_what_is_none_is_refused() -> None:
    env = CorridorEnv(SHORT)
    _, two, _ = with_signs(env, (True, False, False))
    env.step("PULL(green)")
    text, *_, info = env.step("PULL(door)")  # costs no pull
    assert info["invalid"] and text.startswith("invalid action: there is no such handle; there are red, blue, green")
    assert env.step(f"PULL({mistaken_handle(SHORT, two)})")[0] == "no sign, door 1 of 3, 3 pulls left"


def test_to_run_out_of_pulls_is_a_failure_and_the_turn_limit_a_cut() -> None:
    env = CorridorEnv(SHORT)
    one, *_ = with_signs(env, (False, False, False))
    twin = env.fork()
    for _ in range(5):
        _, reward, terminated, truncated, info = env.step(f"PULL({mistaken_handle(SHORT, one)})")
    assert (reward, terminated, truncated, info["success"], info["oracle"]) == (0.0, True, False, False, 0.0)
    for _ in range(4):
        twin.step("no pull")
    assert twin.oracle() == pytest.approx(0.6**3), "three turns are left, though five pulls are"
    for _ in range(3):
        _, reward, terminated, truncated, info = twin.step("no pull")
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, False)


def test_chances_by_hand() -> None:
    chance = chances((False, True), 3, 0.6)
    assert chance[0].tolist() == [0, 0, 1]
    assert chance[1].tolist() == pytest.approx([0, 1, 1])
    assert chance[2].tolist() == pytest.approx([0.6, 1, 1])
    assert chance[3].tolist() == pytest.approx([0.6 + 0.4 * 0.6, 1, 1])


def play(env: CorridorEnv, skill: float, rng: np.random.Generator) -> tuple[float, float]:
    """(what the oracle said at the beginning, the verdict) for an agent of that skill on a training task."""
    tasks = env.tasks("train")
    env.reset(options={"task": tasks[int(rng.integers(len(tasks)))]})
    said, over = env.oracle(), False
    while not over:
        _, reward, terminated, truncated, _ = env.step(env.expert(flaw=1 - skill, rng=rng))
        over = terminated or truncated
    return said, reward


@pytest.mark.parametrize(("skill", "holds"), [(0.6, True), (0.5, False)])
def test_the_oracle_is_the_chance_of_an_agent_of_its_skill_and_of_no_other(skill: float, holds: bool) -> None:
    env, rng = CorridorEnv(), np.random.default_rng(0)
    said, came = np.array([play(env, skill, rng) for _ in range(1500)]).T
    error = abs(came.mean() - said.mean()) / (came.std() / len(came) ** 0.5)
    assert (error < 3) == holds


def test_what_any_handle_does_leaves_the_oracle_as_it_was() -> None:
    env = CorridorEnv(SHORT)
    with_signs(env, (True, False, False))
    before = env.oracle()
    assert 0 < before < 1
    env.step("PULL(white)")
    assert env.oracle() == pytest.approx(before)
    sign = env.task.data[1]
    better, worse = env.fork(), env.fork()
    better.step(f"PULL({right_handle(SHORT, sign)})")
    worse.step(f"PULL({mistaken_handle(SHORT, sign)})")
    assert worse.oracle() < before < better.oracle()
    assert 0.6 * better.oracle() + 0.4 * worse.oracle() == pytest.approx(before)


def test_another_world_has_other_handles() -> None:
    here, there = CorridorConfig(), CorridorConfig(world=1)
    words = CorridorEnv(here).lexicon()
    assert len(words) == 96
    assert 0.1 < np.mean([right_handle(here, word) == right_handle(there, word) for word in words]) < 0.4


@pytest.mark.parametrize(
    "settings",
    [
        {"handles": ("red",)},
        {"handles": ("Red", "blue")},
        {"handles": ("red", "a b")},
        {"doors": 0},
        {"doors": 27},
        {"pulls": 41},
        {"signs": 3},
        {"signs": 999},
        {"signs": 4, "doors": 3},
        {"blank": 1.0},
        {"skill": 0.0},
        {"train_tasks": 0},
    ],
)
def test_bad_settings(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="corridor: "):
        CorridorConfig(**settings)  # type: ignore[arg-type]
