"""Environments that break while tasks are searched: the search pays, the others do not."""

from typing import Any

import pytest
from rollout_cases import jobs
from search_cases import search, searches, tree_bits
from test_fork_faults import BAD, TASKS, breaking, disk, lost

from agent_envs.isolation.faults import FaultKind, Stage
from agents.rollout.search.settings import ToTSettings
from agents.tree.episode import Fault

HOW = ToTSettings(branch=3, beam=2)


@pytest.mark.parametrize("call", ["step", "fork"])
def test_what_breaks_is_begun_again_at_the_root(call: str) -> None:
    whole = searches(search(jobs(TASKS), HOW))
    played = search(jobs(TASKS), HOW, make_env=breaking(call, disk, 1))
    (fault,) = played.faults
    assert (fault.kind, fault.stage) == (FaultKind.RAISED, Stage(call)) and fault.job.task.id == BAD
    for mine, before in zip(searches(played), whole, strict=True):
        assert (tree_bits(mine) == tree_bits(before)) == (mine.job.task.id != BAD)
        assert mine.job.attempt == int(mine.job.task.id == BAD)


@pytest.mark.parametrize("call", ["step", "fork"])
def test_what_breaks_for_good_is_given_up(call: str) -> None:
    played = search(jobs(TASKS), HOW, make_env=breaking(call, disk, 1 << 30), retries=1)
    (given_up,) = [o for o in played.outcomes if isinstance(o, Fault)]
    assert given_up.job.task.id == BAD and given_up.job.attempt == 1 and len(played.faults) == 2
    assert len(played.episodes) == TASKS - 1


@pytest.mark.parametrize("call", ["step", "fork"])
@pytest.mark.parametrize("times", [1, 3, 20])
def test_who_loses_its_host_goes_on_where_it_was(call: str, times: int) -> None:
    whole = search(jobs(TASKS), HOW)
    played = search(jobs(TASKS), HOW, make_env=breaking(call, lost, times))
    assert played.faults == []
    assert [tree_bits(e) for e in played.episodes] == [tree_bits(e) for e in whole.episodes]


def test_every_environment_is_closed() -> None:
    made: list[Any] = []
    closed: list[Any] = []
    source = breaking("step", disk, 1)

    class Counted(source):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def fork(self) -> Any:
            twin = super().fork()
            made.append(twin)
            return twin

        def close(self) -> None:
            closed.append(self)

    search(jobs(TASKS), HOW, make_env=Counted)
    assert len(made) > 3 * TASKS
    assert {id(env) for env in made} == {id(env) for env in closed}
