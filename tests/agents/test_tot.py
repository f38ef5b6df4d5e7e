"""A search on the scripted engine: what is drawn is kept, budgets hold, one action for every state is ReAct."""

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fork_cases import engine
from rollout_cases import CHAT, jobs, path
from search_cases import ORACLE, search, searches, tree_bits

from agent_envs.identity.env import IdentityEnv
from agents.engine.base import Completion, Request, StopReason
from agents.rollout.play import rollout
from agents.rollout.search.settings import Rank, ScorerKind, Strategy, ToTSettings
from agents.rollout.search.strategy import Search, SearchNode
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job

EVERY = [
    ToTSettings(branch=3),
    ToTSettings(branch=3, rank=Rank.SCORE),
    ToTSettings(branch=4, search=Strategy.BEST_FIRST, nodes=32),
    ToTSettings(branch=2, search=Strategy.BEST_FIRST, nodes=20, beam=1, rank=Rank.SCORE),
    ToTSettings(branch=3, search=Strategy.PUCT, nodes=30),
]
each_search = pytest.mark.parametrize("how", EVERY, ids=lambda h: f"{h.search}-{h.rank}-{h.branch}")


def test_one_action_for_every_state_is_react() -> None:
    asked = jobs(6, 2)
    plain = rollout(IdentityEnv, engine(), CHAT, asked, ORACLE).episodes
    searched = searches(search(asked, ToTSettings(branch=1)))
    for a, b in zip(plain, searched, strict=True):
        assert path(a) == path(b) and a.texts == b.texts and a.success == b.success and a.reward == b.reward
        assert [x.logp for x, _ in a.turns] == [x.logp for x, _ in b.turns]
        assert [n.tokens for n in a.root.walk()] == [n.tokens for n in b.root.walk()], "the tree is the chain"
        assert (len(a.own_turns), a.sampled_tokens, a.invalid) == (len(b.own_turns), b.sampled_tokens, b.invalid)
    assert len({e.success for e in plain}) == 2
    more = searches(search(asked, ToTSettings(branch=2)))
    assert not all(path(a) == path(b) for a, b in zip(plain, more, strict=True)), "the control: a choice makes another"


@each_search
def test_everything_that_was_sampled_is_in_the_tree(how: ToTSettings) -> None:
    speaker = engine()
    said: list[tuple[int, ...]] = []
    complete = speaker._complete
    speaker._complete = lambda request: said.append((done := complete(request)).tokens) or done  # type: ignore
    found = searches(search(jobs(5), how, engine=speaker))
    kept = sorted(a.tokens for e in found for a, _ in e.own_turns for _ in range(a.count))
    assert kept == sorted(said) and sum(map(len, said)) == sum(e.sampled_tokens for e in found)
    assert any(a.count > 1 for e in found for a, _ in e.own_turns), "some siblings were drawn alike"
    for e in found:
        for state in (n for n in e.root.walk() if n.kind is Kind.STATE and n.children):
            assert sum(a.count for a in state.children) == how.branch
            assert len({a.tokens for a in state.children}) == len(state.children)
    assert not speaker._history, "no session stays open"


@each_search
def test_what_it_settles_for_is_a_path_of_the_tree(how: ToTSettings) -> None:
    found = searches(search(jobs(8), how))
    assert {e.success for e in found} == {True, False} or how.rank == Rank.RETURN
    for e in found:
        state = e.root
        for action, following in e.turns:
            assert any(a is action for a in state.children) and action.children == [following]
            state = following
        assert [CHAT.action_text(a.tokens) for a, _ in e.turns] == [text for text, _ in e.texts]
        assert state.terminated or state.truncated
        leaves = [n for n in e.root.walk() if n.kind is Kind.STATE and not n.children]
        if how.rank == Rank.RETURN:
            assert e.success == any(n.success for n in leaves)


@each_search
def test_neither_other_tasks_nor_timing_matter(how: ToTSettings) -> None:
    together = [tree_bits(e) for e in searches(search(jobs(6), how))]
    slow = [tree_bits(e) for e in searches(search(jobs(6), how, batch=1))]
    few = [tree_bits(e) for e in searches(search(jobs(6), how, slots=how.sessions))]
    alone = [tree_bits(e) for job in jobs(6) for e in searches(search([job], how))]
    assert together == slow == few == alone
    other = [tree_bits(e) for e in searches(search(jobs(6, seed=1), how))]
    assert together != other


@pytest.mark.parametrize("nodes", [7, 12])
@pytest.mark.parametrize("kind", Strategy)
def test_budgets_hold(nodes: int, kind: Strategy) -> None:
    how = ToTSettings(branch=3, search=kind, nodes=nodes, rank=Rank.SCORE)
    found = searches(search(jobs(6), how, ScorerKind.RANDOM))
    assert all(e.nodes <= nodes for e in found) and any(e.nodes + 3 > nodes for e in found)
    freely = searches(search(jobs(6), replace(how, nodes=40), ScorerKind.RANDOM))
    spent, less = sum(e.nodes for e in freely), sum(e.nodes for e in found)
    assert spent > less if nodes == 7 else spent >= less
    cut = [e for e in found if e.end.truncated and not e.end.children]
    assert nodes > 7 or (cut and not any(e.success for e in cut))
    few = searches(search(jobs(6), replace(how, nodes=0, tokens=10), ScorerKind.RANDOM))
    assert all(e.rounds <= 2 for e in few) and max(e.rounds for e in freely) > 2
    none = searches(search(jobs(2), replace(how, nodes=0, seconds=1e-9), ScorerKind.RANDOM))
    assert all(e.nodes == 0 and not e.success for e in none)


def test_a_scorer_that_knows_finds_more_than_chance() -> None:
    how = ToTSettings(branch=4, beam=1, rank=Rank.SCORE)
    rates = {
        kind: sum(bool(e.success) for e in searches(search(jobs(30), how, kind)))
        for kind in (ScorerKind.ORACLE, ScorerKind.RANDOM)
    }
    assert rates[ScorerKind.ORACLE] >= rates[ScorerKind.RANDOM] + 8


# -- the search itself, by hand ------------------------------------------------------------------------------------


@dataclass
class Told:
    """As much of a player as a search looks at."""

    episode: Episode
    job: Job


def thought(
    name: int, parent: SearchNode | None = None, reward: float = 0.0, over: bool = False, count: int = 1
) -> SearchNode:
    job = jobs(1)[0]
    state = Node(Kind.STATE, (name,), terminated=over, success=bool(reward) if over else None)
    turns: list[tuple[Node, Node]] = [] if parent is None else list(parent.player.episode.turns)
    if parent is not None:
        action = Node(Kind.ACTION, (name,), reward=reward, count=count)
        parent.state.add(action).add(state)
        turns.append((action, state))
    player: Any = Told(Episode(job, Node(Kind.STATE, (0,)), turns=turns), job)
    request = None if over else Request(name, (name,), 5, 0)
    address = () if parent is None else (*parent.address, len(parent.children))
    return SearchNode(player, request, state, parent, address, count)


def expand(s: Search, parent: SearchNode, children: list[SearchNode], scores: list[float]) -> None:
    said = Completion(0, (1,), (-1.0,), (1.0,), StopReason.END, 0)
    s.grow(parent, children, [said] * sum(c.count for c in children))
    s.take(children, scores)


def names(thoughts: list[SearchNode]) -> list[int]:
    return [t.state.tokens[0] for t in thoughts]


def test_best_first_takes_the_best_wherever_it_is() -> None:
    root = thought(1)
    s = Search(jobs(1)[0], ToTSettings(branch=2, search=Strategy.BEST_FIRST, beam=1, nodes=100), root)
    assert s.next_round() == [root]
    a, b = thought(2, root), thought(3, root)
    expand(s, root, [a, b], [0.5, 0.4])
    assert s.next_round() == [a]
    c, d = thought(4, a), thought(5, a)
    expand(s, a, [c, d], [0.1, 0.3])
    assert s.next_round() == [b], "one depth higher, but better"
    assert names(s.front) == [3, 5, 4]
    won = thought(6, b, reward=1.0, over=True)
    expand(s, b, [won, thought(7, b)], [0.0, 0.9])
    assert s.next_round() == [] and s.answer() is won and s.result().success


def test_a_beam_keeps_the_best_of_a_depth_and_gives_up_the_rest() -> None:
    root = thought(1)
    s = Search(jobs(1)[0], ToTSettings(branch=3, beam=2), root, discount=0.5)
    s.next_round()
    paid = thought(2, root, reward=0.2)
    expand(s, root, [paid, thought(3, root), thought(4, root)], [0.1, 0.4, 0.6])
    assert names(s.next_round()) == [4, 2], "0.5 * 0.6 and 0.2 + 0.5 * 0.1 against 0.5 * 0.4"
    assert paid.score == pytest.approx(0.25)
    lost = thought(5, paid, over=True)
    expand(s, paid, [lost, thought(6, paid), thought(7, paid)], [9.0, 0.1, 0.2])
    assert lost.score == pytest.approx(0.2), "a finished path is worth what it was paid, whatever the critic says"
    assert names(s.next_round()) == [7, 6]


def test_where_nobody_tells_a_finished_path_keeps_its_place() -> None:
    root = thought(1)
    s = Search(jobs(1)[0], ToTSettings(branch=3, beam=2, rank=Rank.SCORE), root)
    s.next_round()
    done = thought(2, root, reward=1.0, over=True)
    expand(s, root, [done, thought(3, root), thought(4, root)], [0.7, 0.8, 0.1])
    assert names(s.next_round()) == [3] and s.finished == [done]
    other = thought(5, s.front[0], over=True)
    expand(s, s.front[0], [other, thought(6, s.front[0]), thought(7, s.front[0])], [0.9, 0.2, 0.1])
    assert s.next_round() == [] and s.answer() is other, "the verdict was not looked at"
    assert not s.result().success


def test_puct_by_hand() -> None:
    root = thought(1)
    s = Search(jobs(1)[0], ToTSettings(branch=4, search=Strategy.PUCT, nodes=100, explore=2.0), root)
    assert s.next_round() == [root]
    a, b = thought(2, root, count=3), thought(3, root)
    expand(s, root, [a, b], [0.2, 0.8])
    assert (root.visits, root.total) == (1, pytest.approx(0.25 * (3 * 0.2 + 0.8)))
    # 0.2 + 2 * 3/4 * 1 / 2 = 0.95 against 0.8 + 2 * 1/4 * 1 / 2 = 1.05
    assert s.next_round() == [b]
    expand(s, b, [thought(4, b, count=2, over=True), thought(5, b, count=2)], [0.0, 0.4])
    assert (b.visits, b.total) == (2, pytest.approx(0.8 + 0.2)) and root.visits == 2
    # a: 0.2 + 2 * 3/4 * sqrt(2) / 2 = 1.26; b: 0.5 + 2 * 1/4 * sqrt(2) / 3 = 0.74
    assert s.next_round() == [a]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"branch": 0}, "branch must be at least 1, not 0"),
        ({"nodes": -1}, "nodes must be at least 0, not -1"),
        ({"search": "dfs"}, "search must be one of bfs, best_first, puct"),
        ({"rank": "luck"}, "rank must be one of return, score"),
        ({"nodes": 3}, "nodes (3) must allow the 4 actions of one state"),
        ({"search": Strategy.BEST_FIRST}, "best_first needs a budget"),
        ({"search": Strategy.PUCT, "nodes": 9, "beam": 3}, "beam only works with bfs and best_first"),
        ({"explore": 2.0}, "explore only works with puct"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        ToTSettings(**options)


def test_a_search_needs_room_and_someone_to_choose() -> None:
    with pytest.raises(ValueError, match="too few for the 8 actions"):
        search(jobs(1), ToTSettings(), slots=7)
    with pytest.raises(ValueError, match="needs a critic"):
        search(jobs(1), ToTSettings(), ScorerKind.VALUE)
    with pytest.raises(ValueError, match="ranks finished episodes only"):
        search(jobs(1), ToTSettings(), ScorerKind.MAJORITY)
