"""A search in progress (`settings`): which states are expanded next, when it is over, and what its answer is.

Invariant: it knows no engine and no environment; what it decides depends on the scores that it is given, and, where
there is a budget of time, on the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agents.engine.base import Completion, Request
from agents.rollout.react import ReAct
from agents.rollout.search.settings import Rank, Strategy, ToTSettings
from agents.tree import Node
from agents.tree.episode import Job, Searched


@dataclass(eq=False)
class SearchNode:
    """A state of a search, and the player that stands there."""

    player: ReAct
    request: Request | None
    """What the engine is asked to go on from here; None where the episode is over."""
    state: Node
    """Its node of the tree."""
    parent: SearchNode | None = None
    address: tuple[int, ...] = ()
    """Which of the actions drawn in each state on the way led here, from 0."""
    count: int = 1
    """How many siblings were drawn alike."""
    session: int | None = None
    """The engine's session that stood here; it may be closed, or have gone on."""
    score: float = 0.0
    children: list[SearchNode] = field(default_factory=list)
    expanded: bool = False
    given_up: bool = False
    """Others were better; it is never expanded."""
    visits: int = 0
    """puct: scores that were seen here and below, and their sum."""
    total: float = 0.0

    @property
    def over(self) -> bool:
        return self.request is None

    @property
    def paid(self) -> list[float]:
        return [action.reward for action, _ in self.player.episode.turns]

    def path(self) -> Iterator[SearchNode]:
        """From here up to the root."""
        node: SearchNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def seed(self, sibling: int) -> int:
        """Seed of the ``sibling``-th action drawn here; the first ones all the way are what ReAct would do."""
        address = (*self.address, sibling)
        return self.player.job.seed(len(self.player.episode.turns), *(address if any(address) else ()))


@dataclass
class Search:
    """One search in progress."""

    job: Job
    settings: ToTSettings
    root: SearchNode
    additive: bool = True
    """Whether scores are what is still to be paid (`agents.rollout.search.scorers.Scorer`)."""
    discount: float = 1.0
    front: list[SearchNode] = field(default_factory=list)
    """Those that may be expanded next; of bfs, all of one depth. puct finds them by itself."""
    finished: list[SearchNode] = field(default_factory=list)
    nodes: int = 0
    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    """Time since it began, as its owner measured it."""

    @property
    def needs_scores(self) -> bool:
        """Whether there is ever anything to choose from."""
        return self.settings.branch > 1

    def __post_init__(self) -> None:
        (self.finished if self.root.over else self.front).append(self.root)

    def next_round(self) -> list[SearchNode]:
        """The states that are expanded now; none when the search is over."""
        chosen = [] if self._settled() else self._choose()
        affordable = (self.settings.nodes - self.nodes) // self.settings.branch if self.settings.nodes else len(chosen)
        chosen = chosen[: max(0, affordable)]
        self.rounds += bool(chosen)
        return chosen

    def grow(self, parent: SearchNode, children: Sequence[SearchNode], drawn: Sequence[Completion]) -> None:
        """Takes the children of an expanded state; ``drawn`` is all that was sampled for them."""
        parent.expanded, parent.children = True, list(children)
        self.nodes += len(drawn)
        self.tokens += sum(len(completion.tokens) for completion in drawn)

    def take(self, fresh: Sequence[SearchNode], scores: Sequence[float]) -> None:
        """Takes the scores of all children of a round, and gives up what is not among the best."""
        for node, score in zip(fresh, scores, strict=True):
            node.score = self._whole(node, score)
        settings = self.settings
        if settings.search == Strategy.BFS:
            self.front = self._beam(fresh)
        elif settings.search == Strategy.BEST_FIRST:
            self.front = best([t for t in self.front if not t.expanded] + [t for t in fresh if not t.over])
            self.finished += [t for t in fresh if t.over]
        else:
            self.finished += [t for t in fresh if t.over]
            for node in fresh:
                node.visits, node.total = 1, node.score
            for parent in dict.fromkeys(t.parent for t in fresh if t.parent is not None):
                seen = sum(c.score * c.count for c in parent.children) / sum(c.count for c in parent.children)
                for above in parent.path():
                    above.visits += 1
                    above.total += seen
            self.front = [t for t in self.nodes_so_far() if not (t.over or t.expanded)]

    def nodes_so_far(self) -> Iterator[SearchNode]:
        """All states, depth first."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def answer(self) -> SearchNode:
        """The search's answer: the best finished one, or, without any, the best that there is."""
        if not self.finished:
            return best(self.front or [self.root])[0]
        if self.settings.rank == Rank.RETURN:
            return max(self.finished, key=lambda t: (bool(t.state.success), sum(t.paid), t.score))
        return best(self.finished)[0]

    def result(self) -> Searched:
        """The search as an episode. One that was cut by its budget is truncated where it settled."""
        answer = self.answer()
        if not answer.over:
            answer.state.truncated, answer.state.success = True, False
        path = list(reversed([t.state for t in answer.path()]))
        actions = [next(a for a in s.children if a.children[0] is t) for s, t in pairwise(path)]
        episode = answer.player.episode
        return Searched(
            self.job,
            self.root.state,
            turns=list(zip(actions, path[1:], strict=True)),
            texts=list(episode.texts),
            prompt=episode.prompt,
            invalid=episode.invalid,
            errors=episode.errors,
            metrics=dict(episode.metrics),
            rounds=self.rounds,
        )

    # -- choosing ------------------------------------------------------------------------------------------------

    def _whole(self, node: SearchNode, score: float) -> float:
        """G(s) = sum discount^i r_i + discount^d V(s), where rewards are seen; of a finished path what it was paid."""
        if not self.additive or self.settings.rank == Rank.SCORE:
            return score
        paid = node.paid
        owed = 0.0 if node.over else self.discount ** len(paid) * score
        return sum(self.discount**i * reward for i, reward in enumerate(paid)) + owed

    def _beam(self, fresh: Sequence[SearchNode]) -> list[SearchNode]:
        if self.settings.rank == Rank.RETURN:
            self.finished += [t for t in fresh if t.over]
            return best([t for t in fresh if not t.over])[: self.settings.beam]
        # Nothing says that a finished path is wrong: it keeps its place.
        kept = best(fresh)[: max(0, self.settings.beam - len(self.finished))]
        self.finished += [t for t in kept if t.over]
        return [t for t in kept if not t.over]

    def _settled(self) -> bool:
        settings = self.settings
        if not self.front or (settings.tokens and self.tokens >= settings.tokens):
            return True
        if settings.seconds and self.seconds >= settings.seconds:
            return True
        if settings.rank == Rank.RETURN:
            return any(t.state.success for t in self.finished)
        if settings.search == Strategy.BFS or not self.finished:
            return False
        return max(t.score for t in self.finished) >= max(t.score for t in self.front)

    def _choose(self) -> list[SearchNode]:
        if self.settings.search != Strategy.PUCT:
            return self.front[: self.settings.beam]
        open_ = {id(t) for leaf in self.front for t in leaf.path()}
        node = self.root
        while node.expanded:
            parent = node
            node = max((c for c in parent.children if id(c) in open_), key=lambda c: self._upper(parent, c))
        return [node]

    def _upper(self, parent: SearchNode, child: SearchNode) -> float:
        """Q + explore P sqrt(N) / (1 + n), with P the share of the draws in the parent that led here."""
        prior = child.count / self.settings.branch
        return child.total / child.visits + self.settings.explore * prior * math.sqrt(parent.visits) / (
            1 + child.visits
        )


def best(nodes: Sequence[SearchNode]) -> list[SearchNode]:
    """The highest score first; of equal ones that which was drawn first."""
    return sorted(nodes, key=lambda t: -t.score)
