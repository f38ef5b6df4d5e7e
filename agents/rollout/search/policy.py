"""A rollout in which every task is searched (`agents.rollout.search.settings`), many tasks at once.

Invariants: a search goes in rounds. Its states are expanded together, and their children, with those of all other
searches, are scored in one pass when neither the engine nor an environment is asked for anything more; so neither
timing nor other tasks matter. A state's actions are sampled in copies of its session, and each different one is done in
a copy of its environment. Between rounds only the states that go on keep a session; one that is taken up again later is
read again.

A search whose environment breaks is begun again at the root, as a new attempt; the others are not touched. A search
that merely loses a host that another environment broke gets a fresh environment, in which what was done is done again.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from time import monotonic

from agents.engine.base import Completion, Request, need
from agents.rollout.react import ReAct
from agents.rollout.scheduler import Scheduler, SchedulingPolicy
from agents.rollout.search.scorers import Scorer
from agents.rollout.search.settings import SearchPlan
from agents.rollout.search.slot import Draw, Expanded, Expansion, SearchSlot
from agents.rollout.search.strategy import Search, SearchNode


class Searching(SchedulingPolicy[SearchSlot]):
    """Every job is a search.

    Raises ValueError without a scorer or slots that the search needs, and EngineError for an engine that cannot fork.
    """

    slot_class = SearchSlot

    def __init__(self, scheduler: Scheduler[SearchSlot], plan: SearchPlan, scorer: Scorer | None) -> None:
        super().__init__(scheduler)
        self.tot, self.discount, self.scorer = plan.tot, plan.scoring.discount, scorer
        self.sessions_per_job = self.tot.sessions
        if scorer is None and self.tot.branch > 1:
            raise ValueError("a search with more than one branch needs a scorer")
        if self.tot.sessions > self.engine.slots:
            raise ValueError(
                f"the engine has {self.engine.slots} slots, too few for the {self.tot.sessions} actions that a search "
                "samples at once"
            )
        if self.tot.branch > 1:
            need(self.engine, "forks", "--agent tot")
        self.numbers = count()
        self.serves: dict[int, tuple[SearchSlot, Expansion]] = {}
        """The search that a session of the engine serves, and what it was last asked to sample for."""
        self.unscored: list[SearchSlot] = []
        """Searches whose round is over."""

    def answered(self, slot: SearchSlot, request: Request | None) -> None:
        """The environment has reset: the search begins."""
        additive = self.scorer is None or self.scorer.additive
        root = SearchNode(slot.player, request, replace(slot.player.episode.root, children=[]))
        slot.search = Search(slot.job, self.tot, root, additive, self.discount)
        self.next_round(slot)

    def completed(self, completion: Completion) -> None:
        slot, expansion = self.serves[completion.session]
        expansion.done[completion.session] = completion
        if len(expansion.done) < len(expansion.sessions):
            return
        draws = expansion.draws()
        for session in sorted(set(expansion.sessions) - {draw.session for draw in draws}):
            self.close_session(slot, session)
        unused, slot.unused = slot.unused, []
        player = expansion.parent.player
        self.scheduler.ask(slot, partial(self.expanded, expansion), slot.expand, player, draws, unused)

    def idle(self) -> None:
        """Scores the children of all searches whose round is over, in one pass."""
        if not self.unscored:
            return
        assert self.scorer is not None
        slots, self.unscored = self.unscored, []
        scores = iter(self.scorer.scores([node.player.episode for slot in slots for node in slot.fresh]))
        for slot in slots:
            self.scored(slot, [next(scores) for _ in slot.fresh])

    def close(self, slot: SearchSlot) -> None:
        for session in sorted(slot.sessions):
            self.close_session(slot, session)

    # -- rounds --------------------------------------------------------------------------------------------------

    def next_round(self, slot: SearchSlot) -> None:
        """Asks for the actions of the states that are expanded now, or ends the search."""
        search = slot.search
        search.seconds = monotonic() - slot.began
        slot.round = search.next_round()
        going_on = {node.session for node in slot.round}
        for session in sorted(slot.sessions - going_on):
            self.close_session(slot, session)
        if not slot.round:
            self.scheduler.finish(slot, search.result(), reuse=False)
        slot.awaited = len(slot.round)
        for node in slot.round:
            self.sample(slot, node)

    def sample(self, slot: SearchSlot, node: SearchNode) -> None:
        """Asks the engine for the actions of one state."""
        assert node.request is not None
        here = node.session if node.session in slot.sessions else None
        requests = []
        for sibling in range(self.tot.branch):
            request = replace(node.request, session=next(self.numbers), seed=node.seed(sibling))
            if here is None:
                request = replace(request, tokens=tuple(t for step in reversed(list(node.path())) for t in read(step)))
            else:
                request = replace(request, fork_of=here) if sibling else replace(request, session=here)
            requests.append(request)
        expansion = Expansion(node, [request.session for request in requests])
        for request in reversed(requests):  # the session that the others are copies of goes on last
            self.scheduler.submit(slot, request)
            slot.sessions.add(request.session)
            self.serves[request.session] = slot, expansion

    def expanded(self, expansion: Expansion, slot: SearchSlot, found: Expanded) -> None:
        """The environments have answered an expansion."""
        children = [added(expansion.parent, *child) for child in found.children]
        slot.search.grow(expansion.parent, children, list(expansion.done.values()))
        slot.fault = slot.fault or found.fault
        slot.unused += [*found.broken, *(child.player.env for child in children if child.over)]
        for child in children:
            if child.over:
                self.close_session(slot, child.player.session)
        slot.awaited -= 1
        if not slot.awaited:
            self.end_round(slot)

    def end_round(self, slot: SearchSlot) -> None:
        self.scheduler.last_end = monotonic()  # a search takes long; what moves does not stand still
        if slot.fault is not None:
            self.scheduler.fail(slot, slot.fault)
        elif slot.search.needs_scores:
            self.unscored.append(slot)
        else:
            self.scored(slot, [0.0] * len(slot.fresh))

    def scored(self, slot: SearchSlot, scores: Sequence[float]) -> None:
        fresh, search = slot.fresh, slot.search
        search.take(fresh, scores)
        kept = {id(node) for node in search.front}
        for node in fresh:
            if not node.over and id(node) not in kept:
                slot.unused.append(node.player.env)
                node.given_up = True
        self.next_round(slot)

    def close_session(self, slot: SearchSlot, session: int) -> None:
        slot.sessions.remove(session)
        del self.serves[session]
        self.engine.close_session(session)


def read(node: SearchNode) -> tuple[int, ...]:
    """The tokens of an action and of the state after it; of the root, its own."""
    turns = node.player.episode.turns
    return (*turns[-1][0].tokens, *turns[-1][1].tokens) if turns else node.state.tokens


def added(parent: SearchNode, draw: Draw, player: ReAct, request: Request | None) -> SearchNode:
    """The state after an action, as a child of ``parent`` in the tree."""
    action, state = (replace(node, children=[]) for node in player.episode.turns[-1])
    action.count = draw.count
    parent.state.add(action).add(state)
    return SearchNode(player, request, state, parent, (*parent.address, draw.sibling), draw.count, player.session)
