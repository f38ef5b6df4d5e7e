"""Episodes that fork on the scripted engine: which there are, what they share, and that nothing else changes them."""

import math
from itertools import product
from random import Random
from threading import Barrier
from typing import Any

import pytest
from fork_cases import GROUP, bits, engine, plan, play, rule
from rollout_cases import CHAT, jobs, path

from agent_envs.identity.env import IdentityEnv
from agents.rollout.forking.settings import FirstEntropy, ForkPlan, ForkPoint, Measure, Sampling, TopUp
from agents.rollout.play import rollout
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.tree import Kind
from agents.tree.episode import Episode
from agents.tree.merge import grow
from agents.tree.packing import pack

TASKS = 6
VARIANTS = {
    f"{measure}-{top_up}-{first}-{initial}": {
        "measure": measure,
        "top_up": top_up,
        "first": first,
        "initial": initial,
    }
    for measure, top_up, first, initial in product(Measure, TopUp, FirstEntropy, (1, 3))
}
variants = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def episodes(variant: dict[str, Any], tasks: int = TASKS, **options: Any) -> list[Episode]:
    played = play(jobs(tasks, GROUP), plan(**variant), **options)
    assert played.faults == [] and [e.job for e in played.episodes] == jobs(tasks, GROUP)
    return played.episodes


@variants
def test_every_job_becomes_an_episode(variant: dict[str, Any]) -> None:
    found = episodes(variant)
    forks = [e for e in found if e.forked_from is not None]
    assert forks and all(e.turns and (e.end.terminated or e.end.truncated) for e in found)
    assert all(e.forked_from is None for i, e in enumerate(found) if i % GROUP < variant["initial"])


@variants
def test_who_begins_at_the_root_plays_as_without_forks(variant: dict[str, Any]) -> None:
    """What is measured is no more and no less than what would have been said."""
    plain = play(jobs(TASKS, GROUP), None).episodes
    for mine, theirs in zip(episodes(variant), plain, strict=True):
        assert (bits(mine) == bits(theirs)) == (mine.forked_from is None)


@variants
def test_a_fork_is_its_source_up_to_the_fork_and_then_itself(variant: dict[str, Any]) -> None:
    asked = jobs(TASKS, GROUP)
    made = engine()
    found = rollout(IdentityEnv, made, CHAT, asked, plan=plan(**variant)).episodes
    for session, episode in enumerate(found):
        requests = [r for r in made.submitted if r.session == session]
        seeds = list(dict.fromkeys(r.seed for r in requests))
        assert seeds == [episode.job.seed(turn) for turn in range(episode.inherited, len(episode.turns))]
        if episode.forked_from is None:
            assert requests[0].fork_of is None
            continue
        source = found[session - session % GROUP + episode.forked_from]
        assert requests[0].fork_of == session - session % GROUP + episode.forked_from and source.job.sample < session
        assert 1 <= episode.inherited < len(episode.turns)
        assert source.root.tokens == episode.root.tokens
        for (a, s), (b, t) in zip(source.turns[: episode.inherited], episode.turns, strict=False):
            assert (a.tokens, a.logp, a.entropy, a.version, s.tokens) == (
                b.tokens,
                b.logp,
                b.entropy,
                b.version,
                t.tokens,
            )
            assert a is not b and s is not t, "an episode keeps its own chain"
        assert episode.sampled_tokens == sum(len(a.tokens) for a, _ in episode.own_turns) < len(path(episode))


@variants
def test_nothing_else_changes_what_is_played(variant: dict[str, Any]) -> None:
    whole = [bits(e) for e in episodes(variant)]
    assert [bits(e) for e in episodes(variant)] == whole
    for options in (
        {"slots": GROUP},
        {"slots": 2 * GROUP + 3, "batch": 1},
        {"exact": False},
        {"exact": False, "batch": 3},
    ):
        assert [bits(e) for e in episodes(variant, **options)] == whole
    alone = [bits(e) for e in play(jobs(TASKS, GROUP)[3 * GROUP : 4 * GROUP], plan(**variant)).episodes]
    assert alone == whole[3 * GROUP : 4 * GROUP]
    other = play(jobs(TASKS, GROUP, seed=1), plan(**variant)).episodes
    assert [bits(e)[2:] for e in other] != [x[2:] for x in whole]


@pytest.mark.parametrize("tokens", [1, 2, 3, 50])
def test_any_look_ahead_is_made_good(tokens: int) -> None:
    """Also one that is longer than the turn, or than a turn may be."""
    for settings in (None, ReActSettings(max_action_tokens=2)):
        plain = play(jobs(TASKS, GROUP), None, settings=settings).episodes
        found = play(jobs(TASKS, GROUP), plan(tokens=tokens), settings=settings).episodes
        roots = [(bits(a), bits(b)) for a, b in zip(found, plain, strict=True) if a.forked_from is None]
        assert len(roots) < len(found) and all(a == b for a, b in roots)


def test_the_default_measures_the_turn_after_the_observation_and_compares_it_with_the_first() -> None:
    seen: list[ForkPoint] = []

    def watch(fork: ForkPoint, rng: Random) -> int:
        seen.append(fork)
        return 1

    for measure, first in product(Measure, FirstEntropy):
        seen.clear()
        how = ForkPlan(Sampling(3, 1, tokens=2, measure=measure, first=first, top_up=TopUp.ONE_BY_ONE), watch)
        one, two, three = rollout(IdentityEnv, engine(), CHAT, jobs(1, 3), plan=how).episodes
        assert [fork.left for fork in seen] == [2, 1] and (one.forked_from, two.forked_from) == (None, 0)

        def shares(episode: Episode, turn: int) -> tuple[float, ...]:
            return tuple(x / math.log(20) for x in episode.turns[turn][0].entropy[:2])

        ahead = int(measure == Measure.NEXT_TURN)
        assert seen[0].entropy == shares(one, ahead) and seen[0].first_entropy == shares(one, 0) and seen[0].calls == 1
        assert seen[1].entropy == shares(one, 1 + ahead) and seen[1].calls == 2
        assert three.forked_from == 0 and three.inherited == 2


def test_forks_share_nodes() -> None:
    found = episodes({})
    trees = grow(found)
    batch = pack([tree.root for tree in trees])
    assert len(trees) == TASKS and int(batch.count_L.sum()) == TASKS * GROUP
    assert len(batch) < batch.raw_tokens == sum(len(path(e)) for e in found)
    for tree in trees:
        of = {episode.job.sample: nodes for episode, nodes in tree.paths}
        for episode, nodes in tree.paths:
            if episode.forked_from is not None:
                source = of[episode.forked_from]
                assert all(a is b for (a, _), (b, _) in zip(nodes[: episode.inherited], source, strict=False))
                assert min(a.count for a, _ in nodes[: episode.inherited]) >= 2
        assert sum(a.count for a in tree.root.children) == GROUP
    tokens = sum(len(n.tokens) for tree in trees for n in tree.root.walk() if n.kind is Kind.ACTION)
    assert tokens <= sum(e.sampled_tokens for e in found), "nothing that was sampled once lies there twice"


def test_a_plan_wants_whole_groups_and_slots_for_one() -> None:
    with pytest.raises(ValueError, match="needs its 8 jobs, one after another"):
        rollout(IdentityEnv, engine(), CHAT, jobs(1, GROUP + 1), plan=plan())
    with pytest.raises(ValueError, match="needs its 8 jobs, one after another"):
        rollout(IdentityEnv, engine(), CHAT, jobs(2, GROUP)[4:-4], plan=plan())
    with pytest.raises(ValueError, match="4 slots, too few for the 8 episodes"):
        rollout(IdentityEnv, engine(slots=4), CHAT, jobs(1, GROUP), plan=plan())


def test_without_room_for_forks_it_is_the_plain_rollout() -> None:
    plain, found = play(jobs(TASKS, GROUP), None), play(jobs(TASKS, GROUP), plan(initial=GROUP))
    assert [bits(e) for e in found.episodes] == [bits(e) for e in plain.episodes]
    assert rule(ForkPoint((9.0,), (0.0,), 1, 1, 1, 1), Random(0)) == 2, "there would have been forks"


@pytest.mark.parametrize("threads", [3, 1])
def test_the_calls_of_a_round_run_side_by_side(threads: int) -> None:
    together = Barrier(3, timeout=0.5 if threads == 1 else 10)

    class Waiting(IdentityEnv):
        def step(self, action: str) -> Any:
            if self.turn == 0:
                together.wait()
            return super().step(action)

    how, faults = plan(group=3, initial=3), FaultSettings(retries=0)
    played = rollout(Waiting, engine(), CHAT, jobs(1, 3), plan=how, faults=faults, threads=threads)
    assert len(played.episodes) == (3 if threads == 3 else 0), "one after another, they would wait for ever"
