"""Episodes that a program outside this project plays: refusals, faults, and messages of thoughts."""

from typing import Any

import pytest
from clients_cases import SETTINGS, played

from agent_envs import registry
from agent_envs.core import SettingsError
from agent_envs.identity.env import IdentityEnv
from runners.interop.episodes import Episodes, NotRunning


class Broken(IdentityEnv):
    def _act(self, action: Any) -> Any:
        raise OSError("the disk\nis gone")


def test_texts_and_calls_are_the_same_turns() -> None:
    env = IdentityEnv()
    task = env.tasks("test")[2].id
    texts, calls = Episodes(env), Episodes(IdentityEnv(), calls=True)
    assert texts.begin(task) == calls.begin(task) and (texts.tools, len(calls.tools)) == ([], 1)
    assert "<action>" in texts.instructions and "<action>" not in calls.instructions
    while not texts.over:
        turn = env.expert()
        word = env.grammar.parse(turn).args
        (name,) = calls.tools[0]["function"]["parameters"]["properties"]
        assert calls.call("SAY", {name: word}) == texts.message(turn)
    assert calls.over and calls.success and (calls.total, calls.turns) == (texts.total, texts.turns)


def test_no_turn_is_taken_where_no_episode_runs() -> None:
    episodes = Episodes(IdentityEnv())
    for say in (episodes.say, episodes.message):
        with pytest.raises(NotRunning, match="no episode was begun"):
            say("x")
    episodes.begin(split="test", seed=3)
    while not episodes.over:
        episodes.say(episodes.env.expert())
    before = episodes.turns
    with pytest.raises(NotRunning, match="the episode is over"):
        episodes.say("x")
    assert episodes.turns == before and episodes.success
    assert episodes.begin(split="test", seed=3) and not episodes.over and episodes.total == 0 and not episodes.success


def test_an_unknown_task_changes_nothing() -> None:
    episodes = Episodes(IdentityEnv())
    episodes.begin(split="test")
    task = episodes.task
    with pytest.raises(SettingsError, match="no task 'nowhere'"):
        episodes.begin("nowhere")
    assert episodes.task == task and not episodes.over


def test_what_a_broken_environment_raises_ends_the_episode() -> None:
    episodes = Episodes(Broken())
    episodes.begin(split="test")
    with pytest.raises(OSError):
        episodes.say("<action>SAY(red)</action>")
    assert episodes.over and episodes.fault == "OSError: the disk is gone" and episodes.success is None
    episodes.begin(split="test")
    assert episodes.fault is None


def test_a_message_of_thoughts_ends_its_episode() -> None:
    own = played("math", 1)
    episodes = Episodes(registry.from_settings("math", **SETTINGS["math"]))
    episodes.begin(own.task)
    turn = episodes.message("".join(own.turns))
    assert (turn.over, turn.success, turn.reward, episodes.turns) == (True, True, own.total, len(own.turns))
    episodes.begin(own.task)
    turn = episodes.message(own.turns[0])
    assert (turn.over, turn.truncated, turn.success, episodes.over) == (True, True, False, True)
