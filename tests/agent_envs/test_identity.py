"""The example environment, in literal episodes."""

import numpy as np
import pytest

from agent_envs import SettingsError
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv


def test_an_episode() -> None:
    env = IdentityEnv()
    task = env.tasks("train")[0]
    prompt, _ = env.reset(options={"task": task})
    one, two, three = task.data
    assert prompt == f"word: {one}"
    text, reward, *_ = env.step(f"SAY({one})")
    assert (text, reward) == (f"word: {two}", pytest.approx(1 / 3))
    text, reward, *_ = env.step("SAY(nothing)")
    assert (text, reward) == (f"word: {three}", 0)
    text, reward, terminated, truncated, info = env.step(f"SAY({three.upper()})")
    assert (text, reward, terminated, truncated) == ("", pytest.approx(1 / 3), True, False)
    assert info["success"] is False and info["metrics"]["right"] == pytest.approx(2 / 3)


def test_splits_cover_all_sequences_once() -> None:
    env = IdentityEnv()
    seen = [task.data for split in ("train", "valid", "test") for task in env.tasks(split)]
    assert len(seen) == len(set(seen)) == 6**3


def test_the_flaw_is_the_next_word_at_its_rate() -> None:
    env = IdentityEnv()
    words, rng = env.config.words, np.random.default_rng(0)
    task = env.tasks("train")[0]
    env.reset(options={"task": task})
    said = [env.expert(flaw=0.3, rng=rng) for _ in range(500)]
    wrong = words[(words.index(task.data[0]) + 1) % len(words)]
    assert {f"SAY({task.data[0]})", f"SAY({wrong})"} == {turn.partition("<action>")[2][:-9] for turn in said}
    assert 0.25 < np.mean([f"SAY({wrong})" in turn for turn in said]) < 0.35


@pytest.mark.parametrize(
    "settings", [{"words": ("a",)}, {"words": ("a", "a b")}, {"length": 0}, {"length": 9}, {"max_turns": 2}]
)
def test_bad_settings(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="identity: "):
        IdentityConfig(**settings)  # type: ignore[arg-type]
