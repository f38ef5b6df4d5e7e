"""Jobs of several environments on one engine: each is played in its own, and environments that are over serve their
own kind only."""

from collections import Counter
from functools import partial

import pytest
from rollout_cases import CHAT, engine, jobs

from agent_envs.identity.env import IdentityEnv
from agents.rollout.play import rollout
from agents.tree.episode import Job

NAMES = ("first", "second")


class Named(IdentityEnv):
    """Tells its name in the system prompt."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.told = name

    def instructions(self, language: str) -> str:
        return f"{self.told}: {super().instructions(language)}"


MAKERS = {name: partial(Named, name) for name in NAMES}


def asked(n: int) -> list[Job]:
    """The same tasks in both environments, in turn."""
    return [Job(job.task, env=name) for job in jobs(n) for name in NAMES]


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_each_job_is_played_in_its_own_environment(slots: int) -> None:
    played = rollout(MAKERS, engine(slots=slots), CHAT, asked(6))
    assert [e.job for e in played.episodes] == asked(6) and not played.faults
    assert all(e.success and e.prompt[0].startswith(f"{e.job.env}: ") for e in played.episodes)


def test_an_episode_is_the_one_of_its_environment_alone() -> None:
    both = rollout(MAKERS, engine(0.5), CHAT, asked(6)).episodes
    for name in NAMES:
        alone = rollout(MAKERS[name], engine(0.5), CHAT, jobs(6)).episodes
        assert [e.texts for e in both if e.job.env == name] == [e.texts for e in alone]
    first, second = ([e.root.tokens for e in both if e.job.env == name] for name in NAMES)
    assert first != second, "their prompts differ, so equal turns are no accident of one environment for both"


@pytest.mark.parametrize("slots", [1, 2])
def test_environments_are_used_again_by_their_own_kind(slots: int) -> None:
    made: Counter[str] = Counter()

    def make(name: str) -> Named:
        made[name] += 1
        return Named(name)

    rollout({name: partial(make, name) for name in NAMES}, engine(slots=slots), CHAT, asked(9), threads=1)
    assert set(made) == set(NAMES) and max(made.values()) <= slots


def test_a_job_of_no_environment_of_these_is_an_error() -> None:
    with pytest.raises(KeyError):
        rollout(MAKERS, engine(), CHAT, [Job(jobs(1)[0].task, env="third")])
