"""Environments that break: recorded, played again on a fresh copy, then given up; the others notice nothing."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from rollout_cases import CHAT, engine, jobs, path

from agent_envs.core import BackendUnavailable
from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.faults import EnvFault, FaultKind, HostLost, Stage
from agents.rollout.play import Stalled, rollout
from agents.rollout.settings import FaultSettings
from agents.tree.episode import Episode, Fault
from agents.tree.merge import grow

BAD = {job.task.id for job in jobs(9)[::4]}  # three of nine tasks


def breaking(stage: Stage, error: Callable[[], Exception], times: int = 1 << 30) -> Callable[[], IdentityEnv]:
    """Environments that break in ``stage`` of the tasks BAD, each task at most so many times."""
    left = dict.fromkeys(BAD, times)

    class Breaking(IdentityEnv):
        def attempt(self, now: Stage) -> None:
            if (
                now is stage
                and self.task.id in BAD
                and left[self.task.id] > 0
                and (now is Stage.RESET or self.turn == 1)
            ):
                left[self.task.id] -= 1
                raise error()

        def reset(self, **options: Any) -> Any:
            found = super().reset(**options)
            self.attempt(Stage.RESET)
            return found

        def step(self, action: str) -> Any:
            self.attempt(Stage.STEP)
            return super().step(action)

    return Breaking


KINDS = {
    FaultKind.RAISED: lambda: OSError("the disk is gone"),
    FaultKind.UNAVAILABLE: lambda: BackendUnavailable("no answer"),
    FaultKind.MEMORY: MemoryError,
    FaultKind.HUNG: lambda: EnvFault(FaultKind.HUNG, Stage.STEP, "no answer in 3 s"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stage", [Stage.RESET, Stage.STEP])
@pytest.mark.parametrize("slots", [2, 64])
def test_what_breaks_is_given_up_and_the_rest_is_as_without_it(stage: Stage, kind: FaultKind, slots: int) -> None:
    asked = jobs(9)
    whole = rollout(IdentityEnv, engine(0.5), CHAT, asked)
    played = rollout(breaking(stage, KINDS[kind]), engine(0.5, slots=slots), CHAT, asked)
    assert [o.job.task.id for o in played.outcomes] == [job.task.id for job in asked]
    for outcome, untouched in zip(played.outcomes, whole.episodes, strict=True):
        if outcome.job.task.id in BAD:
            assert isinstance(outcome, Fault) and (outcome.kind, outcome.job.attempt) == (kind, 2)
            assert outcome.stage is (Stage.STEP if kind is FaultKind.HUNG else stage)
        else:
            assert isinstance(outcome, Episode) and path(outcome) == path(untouched)
    assert Counter(f.job.id for f in played.faults) == Counter((b, 0, attempt) for b in BAD for attempt in range(3))
    assert len(grow(played.episodes)) == 6, "nothing of a fault gets into a tree"


def test_a_retry_is_a_new_attempt_on_a_fresh_environment() -> None:
    made: list[IdentityEnv] = []
    source = breaking(Stage.STEP, KINDS[FaultKind.RAISED], times=1)

    def make() -> IdentityEnv:
        made.append(source())
        return made[-1]

    played = rollout(make, engine(0.5, slots=1), CHAT, jobs(9))
    assert len(made) == 1 + len(BAD)
    assert [e.job.attempt for e in played.episodes] == [int(e.job.task.id in BAD) for e in played.episodes]
    assert len(played.episodes) == 9 and len(played.faults) == 3
    first, second = played.faults[0].job, played.episodes[0].job
    assert first.seed(0) != second.seed(0), "it samples anew"
    assert "the disk is gone" in str(played.faults[0]) and "OSError" in played.faults[0].message


def test_no_retries() -> None:
    source = breaking(Stage.STEP, KINDS[FaultKind.RAISED], times=1)
    played = rollout(source, engine(), CHAT, jobs(9), faults=FaultSettings(retries=0))
    assert len(played.episodes) == 6 and len(played.faults) == 3


def test_an_innocent_neighbour_is_played_again_as_it_was() -> None:
    whole = rollout(IdentityEnv, engine(0.5), CHAT, jobs(9))
    lost = breaking(Stage.STEP, lambda: HostLost("its host was killed"), times=2)
    played = rollout(lost, engine(0.5), CHAT, jobs(9))
    assert played.faults == []
    assert [path(e) for e in played.episodes] == [path(e) for e in whole.episodes]
    assert all(e.job.attempt == 0 for e in played.episodes)


def test_a_fault_when_it_is_made() -> None:
    left = [OSError("no more processes")]

    def make() -> IdentityEnv:
        if left:
            raise left.pop()
        return IdentityEnv()

    played = rollout(make, engine(slots=1), CHAT, jobs(2))
    assert [(f.stage, f.kind) for f in played.faults] == [(Stage.MAKE, FaultKind.RAISED)] and len(played.episodes) == 2


def test_a_standstill_is_said() -> None:
    class Slow(IdentityEnv):
        def step(self, action: str) -> Any:
            time.sleep(0.06)
            return super().step(action)

    with pytest.raises(Stalled, match=r"no episode has ended for 0\.1 s, 1 are in play"):
        rollout(Slow, engine(slots=1), CHAT, jobs(4), faults=FaultSettings(stall_seconds=0.1))
    assert len(rollout(Slow, engine(slots=1), CHAT, jobs(2), faults=FaultSettings(stall_seconds=5)).episodes) == 2


def test_a_bad_action_is_an_observation() -> None:
    played = rollout(IdentityEnv, engine(0.0), CHAT, jobs(3))
    assert played.faults == [] and len(played.episodes) == 3
