"""The reward of whole episodes in ARPO's tags against the function of its authors."""

import re
from dataclasses import replace

import pytest
from reference_cases import Case, cases

from agent_envs.research.config import Format, ResearchConfig
from agent_envs.research.env import ResearchEnv
from agent_envs.wiki.tasks import Gold


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> ResearchEnv:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = ResearchEnv(ResearchConfig(format=Format.TAGS, train_worlds=1, valid_worlds=1, test_worlds=1))
        made.prepare()
    return made


@cases("arpo_compute_score")
def test_an_episode_earns_what_its_transcript_does(env: ResearchEnv, case: Case) -> None:
    if "error" in case.outputs:
        return  # an accepted answer that is no text cannot be in a task
    gold, text = case.inputs["ground_truth"], case.inputs["solution"].removesuffix(case.inputs["eos_token"] or "")
    turns = [turn for turn in re.split(r"\s*<result>.*?</result>", text, flags=re.DOTALL) if turn]
    accepted = (gold,) if isinstance(gold, str) else tuple(gold)
    task = env.tasks("train")[0]
    env.reset(seed=0, options={"task": replace(task, data=Gold(task.data.partition, (), "", accepted))})
    env.max_turns, over = len(turns), False
    for turn in turns:
        assert not over, "the transcript goes on after its answer"
        _, reward, terminated, truncated, _ = env.step(turn)
        over = terminated or truncated
    assert over
    case.expect(reward, "score")
