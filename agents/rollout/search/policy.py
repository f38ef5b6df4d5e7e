"""A rollout in which every task is searched (`agents.rollout.search.settings`), many tasks at once.

Invariants: a search goes in rounds. Its states are expanded together, and their children, with those of all other
searches, are scored in one pass when neither the engine nor an environment is asked for anything more; so neither
timing nor other tasks matter. A state's actions are sampled in copies of its session, and each different one is done in
a copy of its environment. Between rounds only the states that go on keep a session; one that is taken up again later is
read anew.

A search whose environment breaks is begun again at the root, as a new attempt; the others are not touched. Whoever
merely loses a host that another environment broke gets a fresh environment, in which what was done is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from time import monotonic
from typing import Any

from agents.engine.base import Completion, Request
from agents.rollout.react import ReAct
from agents.rollout.scheduler import Loop, Seat
from agents.rollout.search.scorers import Scorer
from agents.rollout.search.settings import ToTSettings
from agents.rollout.search.slots import Draw, Expansion, Grown, SearchSeat
from agents.rollout.search.tree import Search, Thought
from agents.tree.episode import Fault


class SearchLoop(Loop):
    """See :class:`agents.rollout.scheduler.Loop`. Every job is a search."""

    kind = SearchSeat

    def __init__(self, settings: ToTSettings, scorer: Scorer | None, discount: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.tot, self.scorer, self.discount = settings, scorer, discount
        if scorer is None and settings.branch > 1:
            raise ValueError("a search that has a choice needs a scorer")
        if settings.sessions > self.engine.slots:
            raise ValueError(
                f"the engine has {self.engine.slots} slots, too few for the {settings.sessions} actions that a search "
                "samples at once"
            )
        self.numbers = count()
        self.owner: dict[int, SearchSeat] = {}
        """Who asked for a session of the engine."""
        self.scoring: list[SearchSeat] = []
        """Searches whose round is over."""

    # -- what is done otherwise ----------------------------------------------------------------------------------

    def fill(self) -> None:
        while self.waiting and (len(self.active) + 1) * self.tot.sessions <= self.engine.slots:
            number, job = self.waiting.popleft()
            env = self.idle.pop() if self.idle else None
            seat = self.active[number] = SearchSeat(number, job, self.make_env, env)
            self.ask(seat, self.answered, seat.begin, self.play)

    def seat_of(self, session: int) -> Seat:
        return self.owner[session]

    def answered(self, seat: Seat, request: Request | None) -> None:
        """The task was told: its search begins."""
        seat = of(seat)
        additive = self.scorer is None or self.scorer.additive
        root = Thought(seat.player, request, replace(seat.player.episode.root, children=[]))
        seat._search = Search(seat.job, self.tot, root, additive, self.discount)
        self.next_round(seat)

    def completed(self, seat: Seat, completion: Completion) -> None:
        seat = of(seat)
        expansion = seat.sampling.pop(completion.session)
        expansion.done[completion.session] = completion
        if len(expansion.done) < len(expansion.sessions):
            return
        draws = expansion.draws()
        for session in sorted(set(expansion.sessions) - {draw.session for draw in draws}):
            self.close(seat, session)
        unused, seat.unused = seat.unused, []
        mother = expansion.mother
        self.ask(seat, partial(self.grown, expansion), seat.expand, mother.player, draws, unused)

    def collect(self) -> None:
        super().collect()
        if not self.engine.pending and not self.stepping and self.scoring:
            self.score()

    def leave(self, seat: Seat) -> None:
        del self.active[seat.session]
        for session in list(of(seat).sessions):
            self.close(of(seat), session)
        seat.abandon()

    # -- rounds --------------------------------------------------------------------------------------------------

    def next_round(self, seat: SearchSeat) -> None:
        """Asks for the actions of the states that are expanded now, or ends the search."""
        search = seat.search
        search.seconds = monotonic() - seat.began
        seat.round = search.next_round()
        going_on = {thought.session for thought in seat.round}
        for session in sorted(seat.sessions - going_on):
            self.close(seat, session)
        if not seat.round:
            self.finish(seat)
        seat.awaited = len(seat.round)
        for thought in seat.round:
            self.sample(seat, thought)

    def sample(self, seat: SearchSeat, thought: Thought) -> None:
        """Asks the engine for the actions of one state."""
        assert thought.request is not None
        here = thought.session if thought.session in seat.sessions else None
        asks = []
        for sibling in range(self.tot.branch):
            ask = replace(thought.request, session=next(self.numbers), seed=thought.seed(sibling))
            if here is None:
                ask = replace(ask, tokens=tuple(t for step in reversed(list(thought.path())) for t in read(step)))
            else:
                ask = replace(ask, fork_of=here) if sibling else replace(ask, session=here)
            asks.append(ask)
        expansion = Expansion(thought, [ask.session for ask in asks])
        for ask in reversed(asks):  # the session that the others are copies of goes on last
            self.engine.submit(ask)
            seat.sessions.add(ask.session)
            seat.sampling[ask.session] = expansion
            self.owner[ask.session] = seat

    def grown(self, expansion: Expansion, found: Seat, grown: Grown) -> None:
        """The environments have answered an expansion."""
        seat, mother = of(found), expansion.mother
        children = [born(mother, *child) for child in grown.children]
        seat.search.grow(mother, children, list(expansion.done.values()))
        seat.fault = seat.fault or grown.fault
        seat.unused += [*grown.broken, *(child.player.env for child in children if child.over)]
        for child in children:
            if child.over:
                self.close(seat, child.player.session)
        seat.awaited -= 1
        if not seat.awaited:
            self.end_round(seat)

    def end_round(self, seat: SearchSeat) -> None:
        self.last_end = monotonic()  # a search takes long; what moves does not stand still
        if seat.fault is not None:
            self.leave(seat)
            self.give_up_or_retry(seat.session, Fault.of(seat.job, seat.fault))
        elif seat.search.needs_scores:
            self.scoring.append(seat)
        else:
            self.scored(seat, [0.0] * len(seat.fresh))

    def score(self) -> None:
        """Scores the children of all searches whose round is over, in one pass."""
        assert self.scorer is not None
        seats, self.scoring = self.scoring, []
        found = iter(self.scorer.scores([t.player.episode for seat in seats for t in seat.fresh]))
        for seat in seats:
            self.scored(seat, [next(found) for _ in seat.fresh])

    def scored(self, seat: SearchSeat, scores: Sequence[float]) -> None:
        fresh, search = seat.fresh, seat.search
        search.take(fresh, scores)
        kept = {id(thought) for thought in search.front}
        for thought in fresh:
            if not thought.over and id(thought) not in kept:
                seat.unused.append(thought.player.env)
                thought.given_up = True
        self.next_round(seat)

    def finish(self, seat: SearchSeat) -> None:
        """The search is over: its tree is the episode."""
        del self.active[seat.session]
        episode = self.done[seat.session] = seat.search.result()
        self.last_end = monotonic()
        seat.abandon()
        if self.on_episode:
            self.on_episode(episode)
        self.ended(seat.session)

    def close(self, seat: SearchSeat, session: int) -> None:
        seat.sessions.remove(session)
        del self.owner[session]
        self.engine.close_session(session)


def of(seat: Seat) -> SearchSeat:
    assert isinstance(seat, SearchSeat)
    return seat


def read(thought: Thought) -> tuple[int, ...]:
    """The tokens of an action and of the state after it; of the root, its own."""
    turns = thought.player.episode.turns
    return (*turns[-1][0].tokens, *turns[-1][1].tokens) if turns else thought.state.tokens


def born(mother: Thought, draw: Draw, player: ReAct, request: Request | None) -> Thought:
    """The state after an action, in the tree."""
    action, state = (replace(node, children=[]) for node in player.episode.turns[-1])
    action.count = draw.count
    mother.state.add(action).add(state)
    return Thought(player, request, state, mother, (*mother.address, draw.sibling), draw.count, player.session)
