"""Agents without a model: the expert is right, chance is not, and both do the same again."""

import pytest

from agent_envs import registry
from agent_envs.research.config import ResearchConfig
from benchmarks.baselines import UNCHANGED, baselines, blanked, success
from runners.statistics.intervals import Interval


@pytest.mark.parametrize("name", ["math", "puzzle", "code", "research"])
def test_the_expert_is_right_and_chance_is_not(name: str) -> None:
    small = {"research": ResearchConfig(train_worlds=1, valid_worlds=1, test_worlds=4)}
    env = registry.make(name, small.get(name))
    tasks = env.tasks("test")[: 8 if name == "code" else 20]
    found = [{who: success(env, agent(), tasks) for who, agent in baselines(env).items()} for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["scripted expert"].mean == 1 and found[0]["random agent"].mean < 0.3
    assert found[0].get(UNCHANGED, Interval(0, 0, 0)).high == 0


@pytest.mark.parametrize(("name", "told"), [("math", True), ("puzzle", True), ("wiki", False)])
def test_who_is_shown_nothing_reads_no_observation(name: str, told: bool) -> None:
    env = registry.make(name)
    blind = blanked(type(env))(env.config)
    task = env.tasks("test")[0]
    prompt, _ = env.reset(options={"task": task})
    assert prompt and blind.reset(options={"task": task})[0] == ("" if told else prompt)
    step = env.expert()
    assert blind.step(step)[0] == "" and blind.turn == 1


def test_chance_really_changes_programs() -> None:
    env = registry.make("code")
    task = next(task for task in env.tasks("test") if task.language == "en")
    agent = baselines(env)["random agent"]()
    env.reset(options={"task": task})
    agent.begin(task)
    said = [env.step(agent.act(""))[0].split("\n")[0] for _ in range(4)]
    assert said[0].startswith("main.py: ") and said[1] == "edited" and said[2].startswith("1: ")
