"""Environments that break while episodes fork: the branch pays, the others do not, and the budget is kept."""

from collections.abc import Callable
from typing import Any

import pytest
from fork_cases import GROUP, bits, plan, play
from rollout_cases import jobs

from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.faults import FaultKind, HostLost, Stage
from agents.rollout.forking.settings import Measure, TopUp
from agents.tree.episode import Episode, Fault

TASKS = 4
BAD = jobs(TASKS)[1].task.id
each_measure = pytest.mark.parametrize("measure", Measure)


def breaking(call: str, error: Callable[[], Exception], times: int, turn: int = 1) -> Callable[[], IdentityEnv]:
    """Environments of which the first ``times`` calls break that come for the task BAD after ``turn`` turns."""
    left = [times]

    class Breaking(IdentityEnv):
        def attempt(self, now: str) -> None:
            if now == call and self.task.id == BAD and self.turn >= turn and left[0] > 0:
                left[0] -= 1
                raise error()

        def step(self, action: str) -> Any:
            self.attempt("step")
            return super().step(action)

        def fork(self) -> Any:
            self.attempt("fork")
            return super().fork()

    return Breaking


def disk() -> Exception:
    return OSError("the disk is gone")


def lost() -> Exception:
    return HostLost("its host was killed")


@each_measure
@pytest.mark.parametrize("call", ["step", "fork"])
def test_what_breaks_is_begun_again_at_the_root(call: str, measure: Measure) -> None:
    asked = jobs(TASKS, GROUP)
    whole = play(asked, plan(measure=measure))
    played = play(asked, plan(measure=measure), breaking(call, disk, 1))
    (fault,) = played.faults
    assert (fault.kind, fault.stage) == (FaultKind.RAISED, Stage(call)) and fault.job.task.id == BAD
    assert len(played.episodes) == len(asked)
    (again,) = [e for e in played.episodes if e.job.attempt]
    assert again.job.sample == fault.job.sample and again.forked_from is None
    for mine, before in zip(played.episodes, whole.episodes, strict=True):
        if mine.job.task.id != BAD:
            assert bits(mine) == bits(before), "other tasks notice nothing"
        elif mine.forked_from is None and before.forked_from is None and mine is not again:
            assert bits(mine) == bits(before), "nor do the others that began at the root"


@each_measure
def test_an_environment_that_cannot_be_copied_costs_the_forks_only(measure: Measure) -> None:
    asked = jobs(TASKS, GROUP)
    played = play(asked, plan(measure=measure), breaking("fork", disk, 1 << 30))
    assert len(played.episodes) == len(asked) and len(played.faults) > 1
    mine = [e for e in played.episodes if e.job.task.id == BAD]
    assert all(e.forked_from is None for e in mine)
    assert {e.job.sample for e in mine if e.job.attempt} == {f.job.sample for f in played.faults}
    assert any(e.forked_from is not None for e in played.episodes if e.job.task.id != BAD)


@each_measure
@pytest.mark.parametrize("top_up", TopUp)
@pytest.mark.parametrize("call", ["step", "fork"])
def test_what_breaks_for_good_is_given_up(call: str, measure: Measure, top_up: TopUp) -> None:
    asked = jobs(TASKS, GROUP)
    played = play(asked, plan(measure=measure, top_up=top_up), breaking(call, disk, 1 << 30), retries=0)
    faults = [o for o in played.outcomes if isinstance(o, Fault)]
    assert faults == sorted(played.faults, key=lambda f: f.job.sample) and {f.job.task.id for f in faults} == {BAD}
    assert [o.job for o in played.outcomes] == asked
    assert len(faults) == GROUP if call == "step" else 0 < len(faults) < GROUP


@each_measure
@pytest.mark.parametrize("call", ["step", "fork"])
@pytest.mark.parametrize("times", [1, 3, 20])
def test_who_loses_its_host_goes_on_where_it_was(call: str, times: int, measure: Measure) -> None:
    asked = jobs(TASKS, GROUP)
    whole = play(asked, plan(measure=measure))
    played = play(asked, plan(measure=measure), breaking(call, lost, times))
    assert played.faults == [] and [bits(e) for e in played.episodes] == [bits(e) for e in whole.episodes]


def test_an_environment_that_does_not_repeat_itself_is_broken() -> None:
    source = breaking("step", lost, 1, turn=2)
    made: list[Any] = []

    class Forgetful(source):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def step(self, action: str) -> Any:
            seen, *rest = super().step(action)
            # Only the one that was made last: in it an episode is taken up again.
            return (seen + " …" if len(made) > 3 and self is made[-1] and self.task.id == BAD else seen, *rest)

    played = play(jobs(TASKS, GROUP)[GROUP : 2 * GROUP], plan(initial=3), Forgetful)
    assert [f.kind for f in played.faults] == [FaultKind.GARBAGE]
    assert "asked again" in played.faults[0].message and len(played.episodes) == GROUP


def test_environments_are_closed() -> None:
    opened: list[Any] = []
    closed: list[Any] = []

    class Counted(IdentityEnv):
        def __init__(self) -> None:
            super().__init__()
            opened.append(self)

        def fork(self) -> Any:
            opened.append(super().fork())
            return opened[-1]

        def close(self) -> None:
            closed.append(self)

    played = play(jobs(TASKS, GROUP), plan(), Counted, slots=GROUP)
    assert all(isinstance(o, Episode) for o in played.outcomes)
    assert sorted(map(id, opened)) == sorted(map(id, closed)) and len(opened) > GROUP
