"""The expert from every state, the flaw at its rate, and agents without a model as a floor."""

import re
from statistics import fmean, median

import numpy as np
import pytest

from agent_envs.actions import split_thought
from agent_envs.contract.oracle import expert_succeeds
from agent_envs.core import Task
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.relations import MISTAKES, RELATIONS
from benchmarks.wiki_baselines import BlindAgent, FirstLinkAgent, play
from runners.evaluation.random_wiki import RandomAgent

CONFUSABLE = {*MISTAKES, *(RELATIONS[relation] for relation in MISTAKES)}


class Demonstrator:
    """The expert as an agent."""

    def __init__(self, env: WikiEnv, flaw: float = 0.0) -> None:
        self.env, self.flaw, self.rng = env, flaw, np.random.default_rng(0)

    def begin(self, task: Task) -> None: ...

    def act(self, observation: str) -> str:
        return self.env.expert(flaw=self.flaw, rng=self.rng)


@pytest.fixture(scope="module")
def env() -> WikiEnv:
    return WikiEnv(WikiConfig(train_worlds=4, valid_worlds=1, test_worlds=30))


def test_expert_is_always_right(env: WikiEnv) -> None:
    played = [play(env, Demonstrator(env), task) for task in env.tasks("test")[:600]]
    assert all(reward == 1 and success for reward, success, _ in played)
    assert median(turns for *_, turns in played) >= 4
    assert {turns for *_, turns in played} == {3, 4, 5, 6}


def test_expert_earns_full_marks_with_evidence() -> None:
    env = WikiEnv(WikiConfig(train_worlds=1, valid_worlds=1, test_worlds=4, evidence=0.5))
    assert {play(env, Demonstrator(env), task)[0] for task in env.tasks("test")} == {1.0}


def test_agents_that_do_not_read_fail(env: WikiEnv) -> None:
    tasks = env.tasks("test")[:600]
    answers = tuple(task.data.answer for task in env.tasks("train"))
    rng = np.random.default_rng(0)
    shares = {
        type(agent).__name__: fmean(play(env, agent, task)[1] for task in tasks)
        for agent in (RandomAgent(rng), FirstLinkAgent(), BlindAgent(answers, rng))
    }
    assert shares["RandomAgent"] <= 0.05
    assert shares["FirstLinkAgent"] <= 0.30
    assert shares["BlindAgent"] <= 0.05


def test_expert_recovers_from_what_others_did(env: WikiEnv) -> None:
    """After up to three turns of a random agent the expert still answers, given the turns."""
    env = WikiEnv(WikiConfig(**{**vars(env.config), "max_turns": 14}))
    rng = np.random.default_rng(1)
    for task in env.tasks("test")[:300]:
        agent = RandomAgent(rng)
        observation, _ = env.reset(options={"task": task})
        agent.begin(task)
        for _ in range(int(rng.integers(1, 5))):
            turn = agent.act(observation)
            if "SUBMIT" not in turn:
                observation = env.step(turn)[0]
        assert expert_succeeds(env), task.id


def test_expert_submits_rather_than_running_out_of_turns(env: WikiEnv) -> None:
    for level, turns in ((1, 2), (2, 3), (4, 5)):
        short = WikiEnv(WikiConfig(**{**vars(env.config), "max_turns": turns}))
        task = next(task for task in short.tasks("test") if task.level == level)
        assert play(short, Demonstrator(short), task) == (1.0, True, turns)


def test_every_action_is_quoted_in_its_thought(env: WikiEnv) -> None:
    for task in env.tasks("test")[:80]:
        observation, _ = env.reset(options={"task": task})
        read, over = observation, False
        while not over:
            turn = env.expert()
            thought, _ = split_thought(turn)
            action = env.grammar.parse(turn)
            for piece in re.split(r" \[|'s |的", thought):
                assert piece.rstrip("]") in read, "a thought quotes what has been read"
            assert action.args in thought, "and holds all that the action needs"
            observation, _, terminated, truncated, _ = env.step(turn)
            read, over = f"{read}\n{observation}", terminated or truncated


def test_flaw_strikes_only_confusable_questions_and_stops_early(env: WikiEnv) -> None:
    tasks = env.tasks("test")[:1200]
    confusable = [any(hop.relation in CONFUSABLE for hop in task.data.hops) for task in tasks]
    right = [play(env, Demonstrator(env, 1.0), task)[1] for task in tasks]
    plain = fmean(ok for ok, can in zip(right, confusable, strict=True) if not can)
    struck = fmean(ok for ok, can in zip(right, confusable, strict=True) if can)
    assert struck < 0.1, "a mistake leads to the wrong answer"
    assert 0.75 < plain < 0.98, "early stops only"
    half = fmean(play(env, Demonstrator(env, 0.5), task)[1] for task in tasks)
    assert fmean(right) < half < 1


def test_the_flawed_demonstrator_never_turns_back(env: WikiEnv) -> None:
    """Its mistake is systematic: it goes on as if it were right, and every episode ends with an answer."""
    rng = np.random.default_rng(0)
    for task in env.tasks("test")[:300]:
        env.reset(options={"task": task})
        names, over = [], False
        while not over:
            turn = env.expert(flaw=1.0, rng=rng)
            _, _, over, truncated, info = env.step(turn)
            names.append(info["action"])
            assert not truncated and not info["invalid"]
        assert names[0] == "NAVIGATE" and names[-1] == "SUBMIT" and len(names) <= task.level + 2
        assert set(names[1:]) <= {"CLICK", "SAVE_LINE_IDS", "SUBMIT"}


def test_a_flaw_needs_dice(env: WikiEnv) -> None:
    env.reset(seed=0)
    with pytest.raises(ValueError, match="needs an rng"):
        env.expert(flaw=0.5)


def test_flaw_does_not_depend_on_anything_but_state_and_dice(env: WikiEnv) -> None:
    env.reset(seed=4)
    env.step(env.expert())
    copy = env.fork()
    for seed in range(30):
        one = env.expert(flaw=0.5, rng=np.random.default_rng(seed))
        assert one == copy.expert(flaw=0.5, rng=np.random.default_rng(seed))
