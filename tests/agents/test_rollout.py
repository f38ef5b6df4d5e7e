"""Many episodes at once, on the scripted engine: what is recorded is what was read and sampled, in the jobs' order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import pytest
from rollout_cases import CHAT, engine, jobs, path, tasks
from scripted_engine import FakeEngine

from agent_envs.core import SettingsError, Task
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agents.rollout.play import rollout
from agents.rollout.settings import ReActSettings
from agents.tree import Node
from agents.tree.episode import Episode, Job
from agents.tree.merge import grow
from agents.tree.packing import pack


def play(*arguments: Any, **options: Any) -> list[Episode]:
    """The episodes of a rollout in which nothing broke."""
    played = rollout(*arguments, **options)
    assert played.faults == [] and played.outcomes == played.episodes
    return played.episodes


def said(episodes: Sequence[Episode]) -> list[list[str]]:
    return [[text for text, _ in e.texts] for e in episodes]


# -- what is recorded ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 3, 64])
@pytest.mark.parametrize("batch", [0, 1])
def test_episodes_come_back_in_the_order_of_the_jobs(slots: int, batch: int) -> None:
    asked = jobs(9)
    heard: list[str] = []
    played = play(
        IdentityEnv, engine(slots=slots, batch=batch), CHAT, asked, on_episode=lambda e: heard.append(e.job.task.id)
    )
    assert [e.job for e in played] == asked
    assert sorted(heard) == sorted(j.task.id for j in asked)
    assert all(e.success and e.reward == pytest.approx(1) and len(e.turns) == 3 for e in played)


def test_tokens_are_recorded_as_they_were_read_and_sampled() -> None:
    made = engine(0.5, version=7)
    episodes = play(IdentityEnv, made, CHAT, jobs(6))
    for session, episode in enumerate(episodes):
        sent = [r.tokens for r in made.submitted if r.session == session]
        actions = [action for action, _ in episode.turns]
        assert len(sent) == len(actions) == 3
        read = tuple(t for new, action in zip(sent, actions, strict=True) for t in (*new, *action.tokens))
        assert path(episode) == read
        for action, (text, _) in zip(actions, episode.texts, strict=True):
            assert action.tokens == (*CHAT.encode(text), CHAT.end_id)
            assert len(action.logp) == len(action.entropy) == len(action.tokens)
            assert action.version == 7
        assert episode.sampled_tokens == sum(len(a.tokens) for a in actions)


def test_environments_are_used_again_and_closed() -> None:
    made: list[IdentityEnv] = []
    closed: list[IdentityEnv] = []

    class Counted(IdentityEnv):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def close(self) -> None:
            closed.append(self)

    played = rollout(Counted, engine(slots=4), CHAT, jobs(12))
    assert len(made) <= 4
    assert sorted(map(id, made)) == sorted(map(id, closed))
    assert played.seconds_env > 0


def test_no_jobs_no_episodes() -> None:
    assert play(IdentityEnv, engine(), CHAT, []) == []


def test_a_setting_that_the_user_can_mend_is_no_fault() -> None:
    class Wrong(IdentityEnv):
        def _begin(self, task: Task) -> Any:
            raise SettingsError("identity: there is no such list of words")

    with pytest.raises(SettingsError, match="no such list"):
        rollout(Wrong, engine(), CHAT, jobs(2))


# -- seeds -----------------------------------------------------------------------------------------------------------


def test_the_same_seed_plays_the_same_episodes_whatever_runs_beside_them() -> None:
    whole = said(play(IdentityEnv, engine(0.5), CHAT, jobs(8, samples=2)))
    assert said(play(IdentityEnv, engine(0.5, slots=2, batch=1), CHAT, jobs(8, samples=2))) == whole
    alone = [said(play(IdentityEnv, engine(0.5), CHAT, [job]))[0] for job in jobs(8, samples=2)]
    assert alone == whole
    assert said(play(IdentityEnv, engine(0.5), CHAT, jobs(8, samples=2, seed=1))) != whole


def test_seeds_derive_from_run_task_sample_and_turn() -> None:
    one, two = tasks(2)
    job = Job(one, 3, 5)
    others = [Job(two, 3, 5), Job(one, 4, 5), Job(one, 3, 6)]
    seeds = [job.seed(0), job.seed(1), job.seed("env"), *(other.seed(0) for other in others)]
    assert len(set(seeds)) == len(seeds)
    assert job.seed(0) == Job(replace(one, prompt="other words"), 3, 5).seed(0)
    made = engine()
    play(IdentityEnv, made, CHAT, [job, *others])
    assert [r.seed for r in made.submitted if r.session == 0] == [job.seed(turn) for turn in range(3)]


def test_every_sample_of_a_task_begins_in_the_same_state() -> None:
    seeds: list[int | None] = []

    class Watched(IdentityEnv):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    play(Watched, engine(), CHAT, jobs(1, samples=3))
    assert len(set(seeds)) == 1
    play(Watched, engine(), CHAT, [*jobs(2)[1:], *jobs(1, seed=1)])
    assert len(set(seeds)) == 3


# -- slow environments -----------------------------------------------------------------------------------------------


@dataclass
class Race:
    """One task's environment goes on only when all other episodes have ended."""

    slow: str
    others: int
    when: str
    over: Event
    held_up: bool = False

    def env(self) -> IdentityEnv:
        race = self

        class Slow(IdentityEnv):
            def wait_for_the_others(self) -> None:
                if self.task.id == race.slow and self.turn == 0 and not race.over.wait(race.patience):
                    race.held_up = True

            def _begin(self, task: Task) -> Any:
                self._task = task
                if race.when == "reset":
                    self.wait_for_the_others()
                return super()._begin(task)

            def step(self, action: str) -> Any:
                if race.when == "step":
                    self.wait_for_the_others()
                return super().step(action)

        return Slow()

    patience: float = 10.0

    def ended(self, episode: Episode) -> None:
        self.others -= episode.job.task.id != self.slow
        if not self.others:
            self.over.set()


@pytest.mark.parametrize("when", ["reset", "step"])
def test_a_slow_environment_never_holds_up_the_others(when: str) -> None:
    asked = jobs(12)
    race = Race(asked[0].task.id, len(asked) - 1, when, Event())
    played = play(race.env, engine(slots=3), CHAT, asked, on_episode=race.ended, threads=2, exact=False)
    assert not race.held_up
    assert [e.job for e in played] == asked and all(e.success for e in played)


@pytest.mark.parametrize("when", ["reset", "step"])
def test_without_threads_it_would(when: str) -> None:
    asked = jobs(4)
    race = Race(asked[0].task.id, len(asked) - 1, when, Event(), patience=0.3)
    play(race.env, engine(slots=3), CHAT, asked, on_episode=race.ended, threads=1, exact=False)
    assert race.held_up


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_long_episode_is_truncated_by_its_tokens() -> None:
    (whole,) = play(IdentityEnv, engine(), CHAT, jobs(1))
    first = len(whole.root.tokens) + len(whole.turns[0][0].tokens)
    limit = first + len(whole.turns[0][1].tokens)  # the second state fits, but nothing could be said in it
    (cut,) = play(IdentityEnv, engine(max_length=limit), CHAT, jobs(1), ReActSettings(max_tokens=limit))
    assert len(cut.turns) == 1 and cut.end.truncated and not cut.end.terminated and cut.success is False
    assert cut.end.tokens == () and len(path(cut)) == first
    (more,) = play(IdentityEnv, engine(max_length=limit + 1), CHAT, jobs(1), ReActSettings(max_tokens=limit + 1))
    assert len(more.turns) == 2 and len(more.turns[1][0].tokens) == 1 and len(path(more)) == limit + 1


def test_a_prompt_without_room_is_an_episode_without_turns() -> None:
    (none,) = play(IdentityEnv, engine(), CHAT, jobs(1), ReActSettings(max_tokens=5))
    assert none.turns == [] and none.end.truncated and none.success is False and none.reward == 0
    assert grow([none]) == []


def test_an_episode_is_truncated_by_the_turn_limit() -> None:
    mute = FakeEngine(lambda request, history: (*CHAT.encode("hm"), CHAT.end_id), CHAT.stop_ids)
    (lost,) = play(lambda: IdentityEnv(IdentityConfig(max_turns=4)), mute, CHAT, jobs(1))
    assert len(lost.turns) == 4 and lost.end.truncated and not lost.end.terminated and lost.success is False
    assert lost.invalid == lost.errors == 4
    assert not any(state.truncated for _, state in lost.turns[:-1])


def test_an_action_that_was_cut_is_closed_by_the_next_state() -> None:
    endless = FakeEngine(lambda request, history: CHAT.encode("SAY(red)SAY(red)"), CHAT.stop_ids)
    (cut,) = play(IdentityEnv, endless, CHAT, jobs(1), ReActSettings(max_action_tokens=2))
    action, state = cut.turns[0]
    assert len(action.tokens) == 2 and action.tokens[-1] != CHAT.end_id
    assert state.tokens[0] == CHAT.end_id


# -- trees -----------------------------------------------------------------------------------------------------------


def shape(node: Node) -> Any:
    return node.tokens, node.count, [shape(child) for child in node.children]


def test_a_group_shares_what_its_episodes_have_in_common() -> None:
    episodes = play(IdentityEnv, engine(0.5), CHAT, jobs(2, samples=16))
    chains = [shape(e.root) for e in episodes]
    roots = [tree.root for tree in grow(episodes)]
    assert len(roots) == 2
    assert [shape(e.root) for e in episodes] == chains, "the episodes themselves are left alone"
    batch = pack(roots)
    assert int(batch.count_L.sum()) == 32
    assert len(batch) < batch.raw_tokens == sum(len(path(e)) for e in episodes)
    for root, episodes_of in zip(roots, (episodes[:16], episodes[16:]), strict=True):
        firsts = [e.turns[0][0].tokens for e in episodes_of]
        assert {a.tokens: a.count for a in root.children} == {t: firsts.count(t) for t in firsts}
        assert max(a.count for a in root.children) > 1
        leaves = sorted((float(r), int(n)) for r, n in zip(batch.return_L, batch.count_L, strict=True))
    assert sum(r * n for r, n in leaves) == pytest.approx(sum(e.reward for e in episodes), abs=1e-4)


def test_policies_are_not_mixed_in_a_tree() -> None:
    one, two = (play(IdentityEnv, engine(version=v), CHAT, jobs(1))[0] for v in (1, 2))
    (tree,) = grow([one, two, one])
    assert [(a.version, a.count) for a in tree.root.children] == [(1, 2), (2, 1)]
