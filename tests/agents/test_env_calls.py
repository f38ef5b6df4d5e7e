"""Which threads environments reset and step in, and which of them a later rollout finds."""

import threading
import time
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from rollout_cases import CHAT, engine, jobs

from agent_envs.core import PlayableEnv
from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.faults import HostLost
from agent_envs.isolation.host_process import HostSettings
from agent_envs.isolation.hosts import EnvHosts, RemoteEnv
from agents.engine.base import Completion
from agents.rollout.calls import EnvCalls
from agents.rollout.play import Played, rollout
from agents.rollout.react import ReAct
from agents.rollout.slot import in_turn

TWO = HostSettings(processes=2)


def told(played: Played) -> list[Any]:
    assert not played.faults
    return [(e.job, e.texts, e.reward) for e in played.episodes]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("slots", [2, 64])
def test_episodes_are_those_of_environments_in_this_process(slots: int, exact: bool) -> None:
    wanted = told(rollout(IdentityEnv, engine(0.5), CHAT, jobs(9)))
    with EnvHosts(IdentityEnv, TWO) as hosts:
        assert told(rollout(hosts.make, engine(0.5, slots=slots), CHAT, jobs(9), exact=exact)) == wanted


class Mine(ReAct):
    """A player of one's own, which may wait for anything."""

    threads: ClassVar[set[str]] = set()

    def act(self, completion: Completion) -> None:
        self.threads.add(threading.current_thread().name)
        super().act(completion)


def test_each_process_has_a_thread_unless_a_player_may_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[object] = []
    begin = RemoteEnv.begin_step

    def begin_step(self: RemoteEnv, action: str) -> None:
        began.append((self.process, threading.get_ident()))
        begin(self, action)

    monkeypatch.setattr(RemoteEnv, "begin_step", begin_step)
    with EnvHosts(IdentityEnv, TWO) as hosts:
        spare: dict[str, list[PlayableEnv]] = {}
        rollout(hosts.make, engine(), CHAT, jobs(9), spare=spare)
        assert len(set(began)) == 2 and len(began) == 27  # every step, each process in its own thread
        began.clear()
        rollout(hosts.make, engine(), CHAT, jobs(9), player=Mine, spare=spare)
        assert not began and all("ThreadPool" in name for name in Mine.threads)


def test_a_later_rollout_uses_the_same_environments() -> None:
    made: list[int] = []

    class Counted(IdentityEnv):
        closed = 0

        def __init__(self) -> None:
            super().__init__()
            made.append(1)

        def close(self) -> None:
            Counted.closed += 1

    spare: dict[str, list[PlayableEnv]] = {}
    first = told(rollout(Counted, engine(0.5, slots=4), CHAT, jobs(9), spare=spare))
    assert len(made) == len(spare[""]) == 4 and not Counted.closed
    assert told(rollout(Counted, engine(0.5, slots=4), CHAT, jobs(9), spare=spare)) == first
    assert len(made) == len(spare[""]) == 4 and not Counted.closed
    # Without a place to leave them they are closed.
    assert told(rollout(Counted, engine(0.5, slots=4), CHAT, jobs(9))) == first
    assert len(made) == 8 and Counted.closed == 4


def test_what_a_rollout_fails_with_leaves_no_environment_behind() -> None:
    spare: dict[str, list[PlayableEnv]] = {}
    rollout(IdentityEnv, engine(slots=4), CHAT, jobs(9), spare=spare)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollout(IdentityEnv, engine(slots=4), CHAT, jobs(9), spare=spare, on_episode=interrupt)
    assert spare == {"": []}


def test_environments_of_a_process_that_ended_meanwhile_are_made_anew() -> None:
    with EnvHosts(IdentityEnv, TWO) as hosts:
        spare: dict[str, list[PlayableEnv]] = {}
        first = told(rollout(hosts.make, engine(0.5), CHAT, jobs(9), spare=spare))
        ended = spare[""][0]
        assert isinstance(ended, RemoteEnv)
        ended._host.kill()
        assert told(rollout(hosts.make, engine(0.5), CHAT, jobs(9), spare=spare)) == first
        left = [env for env in spare[""] if isinstance(env, RemoteEnv)]
        assert len(left) == 9 and not any(env.gone for env in left)


def test_a_few_episodes_are_spread_over_the_processes() -> None:
    with EnvHosts(IdentityEnv, TWO) as hosts:
        envs = [hosts.make() for _ in range(8)]
        by_process = sorted(envs, key=lambda env: env.process is envs[0].process)
        turns = in_turn(by_process)
        assert len(turns) == 8 and set(map(id, turns)) == set(map(id, envs))
        places = [env.process for env in turns if isinstance(env, RemoteEnv)]
        assert all(one is not other for one, other in pairwise(places))
        assert [e.process for e in by_process] != places  # before, they were not


def test_calls_end_with_their_rollout() -> None:
    gate, calls = threading.Event(), EnvCalls(2)
    waiting = calls.submit("one", None, gate.wait)
    behind = calls.submit("one", None, int)
    elsewhere = calls.submit("other", None, int)
    assert elsewhere.result(5) == 0 and not behind.done()
    started = time.monotonic()
    calls.close()
    assert time.monotonic() - started < 1  # for what hangs nobody waits
    gate.set()
    assert waiting.result(5) is True
    deadline = time.monotonic() + 5
    while not behind.done() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert behind.cancelled()


def test_what_begins_wrong_is_seen_in_the_call() -> None:
    def wrong() -> None:
        raise HostLost("begun")

    def call() -> None:
        raise HostLost("called")

    calls = EnvCalls(1)
    future = calls.submit("one", wrong, call)
    with pytest.raises(HostLost, match="called"):
        future.result(5)
    assert calls.submit("one", wrong, partial(int, "7")).result(5) == 7
    calls.close()
