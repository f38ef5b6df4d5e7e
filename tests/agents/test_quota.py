"""Rollouts that end with the first complete groups: what is taken, what is cut, and how that goes on."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_cases import CHAT, jobs, path, speaker
from scripted_engine import FakeEngine

from agent_envs.identity.env import IdentityEnv
from agent_envs.isolation.faults import EnvFault, FaultKind, HostLost, Stage
from agents.engine.base import Request
from agents.rollout.play import Played, rollout
from agents.rollout.quota import Quota
from agents.rollout.scheduler import Cut
from agents.tree.episode import Episode, Fault, Job
from agents.tree.plain_episode import episode_of, plain_episode

SIZE = 2
ASKED = jobs(6, samples=SIZE)
SLOW = {ASKED[2].id, ASKED[7].id}
"""One episode in each of the groups 1 and 3 takes a turn more than the others."""
SLOW_GROUPS = [*ASKED[2:4], *ASKED[6:8]]


def script(asked: Sequence[Job]) -> Callable[[Request, tuple[int, ...]], Sequence[int]]:
    """Says right words, and nothing that can be read where a slow episode begins."""
    right = speaker(0.7)
    stalling = {job.seed(0) for job in asked if job.id in SLOW}

    def said(request: Request, history: tuple[int, ...]) -> Sequence[int]:
        if request.seed in stalling:
            return *CHAT.encode("hm"), CHAT.end_id
        return right(replace(request, tokens=history + request.tokens), history)

    return said


def play(asked: Sequence[Job], quota: Quota | None, make: Any = IdentityEnv, slots: int = 64, **options: Any) -> Played:
    engine = FakeEngine(script(asked), CHAT.stop_ids, slots=slots)
    played = rollout(make, engine, CHAT, asked, quota=quota, **options)
    assert not engine.pending
    engine.load(1, None)  # no session was left open
    return played


def ids(episodes: Sequence[Episode | Fault | Cut]) -> list[object]:
    return [one.job.id for one in episodes]


@pytest.fixture(scope="module")
def whole() -> dict[object, Episode]:
    """Every episode, played to its end."""
    return {e.job.id: e for e in play(ASKED, None).episodes}


def same(one: Episode, other: Episode) -> bool:
    columns = [[(a.tokens, a.logp, a.entropy, a.reward, a.invalid) for a, _ in e.turns] for e in (one, other)]
    return (
        path(one) == path(other)
        and columns[0] == columns[1]
        and (one.texts, one.success, one.invalid, one.metrics)
        == (other.texts, other.success, other.invalid, other.metrics)
    )


def test_the_first_complete_groups_end_the_rollout(whole: dict[object, Episode]) -> None:
    played = play(ASKED, Quota(SIZE, 4))
    fast = [job for job in ASKED if job not in SLOW_GROUPS]
    assert ids(played.outcomes) == [job.id for job in fast]
    assert all(same(e, whole[e.job.id]) for e in played.episodes), "what is taken is as it would be without a quota"
    assert ids(played.cut) == [job.id for job in SLOW_GROUPS]
    for cut in played.cut:
        assert cut.episode is not None and len(cut.episode.turns) == 3
        assert cut.episode.over == (cut.job.id not in SLOW), "its partner had ended"
        assert path(cut.episode) == path(whole[cut.job.id])[: len(path(cut.episode))]


def test_without_a_quota_nothing_is_cut() -> None:
    played = play(ASKED, None)
    assert ids(played.outcomes) == [job.id for job in ASKED] and played.cut == []


@pytest.mark.parametrize("as_text", [False, True])
def test_what_was_cut_goes_on_as_if_it_had_not_been(whole: dict[object, Episode], as_text: bool) -> None:
    cuts = play(ASKED, Quota(SIZE, 4)).cut
    begun = [cut.episode for cut in cuts if cut.episode is not None]
    if as_text:
        begun = [episode_of(e.job, json.loads(json.dumps(plain_episode(e)))) for e in begun]
    before = [path(e) for e in begun]
    played = play([cut.job for cut in cuts], Quota(SIZE, 2, must=2, begun=tuple(begun)))
    assert ids(played.outcomes) == [job.id for job in SLOW_GROUPS] and not played.faults and not played.cut
    assert all(same(e, whole[e.job.id]) for e in played.episodes)
    assert [path(e) for e in begun] == before, "what was given is as it was, in case it has to begin again"


def test_its_first_request_holds_all_that_was_read_and_sampled() -> None:
    cuts = play(ASKED, Quota(SIZE, 4)).cut
    slow = [cut for cut in cuts if cut.job.id in SLOW]
    begun = tuple(cut.episode for cut in slow if cut.episode is not None)
    engine = FakeEngine(script(ASKED), CHAT.stop_ids, version=9)
    played = rollout(IdentityEnv, engine, CHAT, [cut.job for cut in slow], quota=Quota(1, 2, begun=begun))
    assert [r.tokens for r in engine.submitted] == [path(e) for e in begun]
    assert [[action.version for action, _ in e.turns] for e in played.episodes] == [[0, 0, 0, 9]] * 2


def test_groups_that_must_end_are_waited_for() -> None:
    order = [*SLOW_GROUPS[:SIZE], *[job for job in ASKED if job not in SLOW_GROUPS[:SIZE]]]
    played = play(order, Quota(SIZE, 3, must=1))
    assert ids(played.outcomes)[:SIZE] == [job.id for job in SLOW_GROUPS[:SIZE]] and len(played.outcomes) == 3 * SIZE
    assert ids(play(order, Quota(SIZE, 3)).outcomes)[:SIZE] != [job.id for job in SLOW_GROUPS[:SIZE]]


def test_what_never_began_has_no_episode(whole: dict[object, Episode]) -> None:
    played = play(ASKED, Quota(SIZE, 2), slots=4)
    assert len(played.outcomes) == 2 * SIZE and len(played.cut) == 4 * SIZE
    assert [cut.episode for cut in played.cut[-2 * SIZE :]] == [None] * 2 * SIZE
    assert sorted(ids(played.outcomes) + ids(played.cut)) == sorted(whole)  # type: ignore[type-var]


class Other(IdentityEnv):
    """Answers otherwise than the environment before it."""

    def step(self, action: str) -> Any:
        return "otherwise", *super().step(action)[1:]


class Lost(IdentityEnv):
    """Its host is lost at the first step."""

    left = 1

    def step(self, action: str) -> Any:
        if Lost.left:
            Lost.left = 0
            raise HostLost
        return super().step(action)


def test_an_environment_that_answers_otherwise_is_a_fault_and_begins_anew() -> None:
    cut = next(cut for cut in play(ASKED, Quota(SIZE, 4)).cut if cut.job.id in SLOW)
    assert cut.episode is not None
    made: list[IdentityEnv] = []

    def make() -> IdentityEnv:
        made.append(Other() if not made else IdentityEnv())
        return made[-1]

    played = play([cut.job], Quota(1, 1, begun=(cut.episode,)), make)
    assert [(f.kind, f.stage, f.job.id) for f in played.faults] == [(FaultKind.GARBAGE, Stage.STEP, cut.job.id)]
    assert [e.job.attempt for e in played.episodes] == [1] and {len(e.turns) for e in played.episodes} == {3}


def test_a_host_that_is_lost_meanwhile_costs_nothing(whole: dict[object, Episode]) -> None:
    cut = next(cut for cut in play(ASKED, Quota(SIZE, 4)).cut if cut.job.id in SLOW)
    assert cut.episode is not None
    Lost.left = 1
    played = play([cut.job], Quota(1, 1, begun=(cut.episode,)), Lost)
    assert not Lost.left and not played.faults and same(played.episodes[0], whole[cut.job.id])


def test_a_group_that_lost_an_episode_is_complete_without_it() -> None:
    class Breaking(IdentityEnv):
        def reset(self, **options: Any) -> Any:
            if options["options"]["task"].id == ASKED[0].task.id:
                raise EnvFault(FaultKind.RAISED, Stage.RESET, "broken")
            return super().reset(**options)

    played = play(ASKED, Quota(SIZE, 4), Breaking)
    assert [isinstance(o, Fault) for o in played.outcomes] == [True] * SIZE + [False] * 3 * SIZE


def test_a_slow_environment_is_cut_where_nobody_waits_for_it(whole: dict[object, Episode]) -> None:
    gate = Event()

    class Slow(IdentityEnv):
        def step(self, action: str) -> Any:
            if self.task.id == ASKED[0].task.id and self.turn == 1:
                gate.wait(60)
            return super().step(action)

    heard: list[Episode] = []

    def ended(episode: Episode) -> None:
        heard.append(episode)
        if len(heard) == 2 * SIZE:  # both groups that are needed
            gate.set()

    played = play(ASKED, Quota(SIZE, 2), Slow, exact=False, on_episode=ended, slots=64)
    assert gate.is_set() and ids(played.outcomes)[0] != ASKED[0].id
    cut = next(cut for cut in played.cut if cut.job.id == ASKED[0].id)
    assert cut.episode is not None and len(cut.episode.turns) == 2, "the turn that was being taken is part of it"
    assert path(cut.episode) == path(whole[cut.job.id])[: len(path(cut.episode))]


def test_environments_that_are_cut_are_closed() -> None:
    closed: list[IdentityEnv] = []

    class Closed(IdentityEnv):
        def close(self) -> None:
            closed.append(self)

    made: list[Closed] = []

    def make() -> Closed:
        made.append(Closed())
        return made[-1]

    play(ASKED, Quota(SIZE, 4), make)
    assert sorted(map(id, made)) == sorted(map(id, closed))


@pytest.mark.parametrize("quota", [Quota(5, 1), Quota(SIZE, 7), Quota(SIZE, 1, must=2)])
def test_a_quota_that_cannot_be_met_is_refused(quota: Quota) -> None:
    with pytest.raises(ValueError, match="12 jobs cannot meet"):
        play(ASKED, quota)


@given(st.data())
def test_portions_meet_the_quota_together(data: st.DataObject) -> None:
    size, groups = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 40))
    asked = [Job(ASKED[0].task, sample) for sample in range(size * groups)]
    wanted = data.draw(st.integers(1, groups))
    quota = Quota(size, wanted, must=data.draw(st.integers(0, wanted)))
    portion = size * data.draw(st.integers(1, 12))
    portions = [asked[i : i + portion] for i in range(0, len(asked), portion)]
    parts = quota.divided(portions)
    assert sum(part.groups for part in parts) == quota.groups
    assert sum(part.must for part in parts) == quota.must
    for part, jobs_of in zip(parts, portions, strict=True):
        assert part.must <= part.groups <= len(jobs_of) // size
    # Spread evenly: what need not end has the same share in every portion, but for rounding.
    free = groups - quota.must
    for part, jobs_of in zip(parts, portions, strict=True):
        share = (len(jobs_of) // size - part.must) * (quota.groups - quota.must) / max(1, free)
        assert abs(part.groups - part.must - share) < 1


def test_an_episode_of_many_turns_comes_back_from_text(whole: dict[object, Episode]) -> None:
    source = next(iter(whole.values()))
    long = source.fork(source.job)
    rng = Random(0)
    for _ in range(200):
        action, state = source.turns[0][0], source.turns[0][1]
        copy = type(action)(**{**vars(action), "children": [], "logp": tuple(rng.gauss(0, 1) for _ in action.tokens)})
        after = type(state)(**{**vars(state), "children": []})
        long.turns.insert(1, (copy, after))
    again = episode_of(long.job, json.loads(json.dumps(plain_episode(long))))
    assert [a.logp for a, _ in again.turns] == [a.logp for a, _ in long.turns]
    assert again.texts == long.texts and again.metrics == long.metrics and again.end.success == long.end.success
    assert [vars(s) | {"children": 0} for _, s in again.turns] == [vars(s) | {"children": 0} for _, s in long.turns]
    assert len(list(again.root.walk())) == 1 + 2 * len(again.turns), "the nodes hang in one chain"
