"""To run out of turns is a failure where nothing else is one, and a cut where the environment is anybody's."""

import pytest
from env_packages import named, skip_without

from agent_envs import registry
from agent_envs.core import TextEnv


def made(name: str, **settings: object) -> TextEnv:
    kind = registry.env_class(name)
    return kind(kind.Config(max_turns=2, **settings))


def last(env: TextEnv, turns: int) -> tuple[bool, bool, bool | None]:
    """(terminated, truncated, success) of the last of some refused turns."""
    env.reset(seed=0)
    for _ in range(turns):
        _, _, terminated, truncated, info = env.step("ACT(what no environment knows)")
    env.close()
    return terminated, truncated, info["success"]


@pytest.mark.parametrize("name", named(["babyai", "household", "tau2", "textworld", "textworld_express"]))
def test_games_that_are_never_lost_are_lost_by_time(name: str) -> None:
    skip_without(name)
    assert last(made(name), 1) == (False, False, None)
    assert last(made(name), 2) == (True, False, False)


@pytest.mark.parametrize("limited", [False, True])
def test_any_other_environment_is_cut_unless_it_is_said(limited: bool) -> None:
    assert last(made("gym", limited=limited), 2) == (limited, not limited, False)
