"""A search in progress (`settings`): which states are expanded next, when it is over, and what it settles for.

Invariant: it knows no engine and no environment; what it decides depends on the scores that it is told, and, where
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
class Thought:
    """A state of a search, and who stands there."""

    player: ReAct
    request: Request | None
    """What the engine is asked to go on from here; None where the episode is over."""
    state: Node
    """Its node of the tree."""
    mother: Thought | None = None
    address: tuple[int, ...] = ()
    """Which of the actions drawn in each state on the way led here, from 0."""
    count: int = 1
    """How many siblings were drawn alike."""
    session: int | None = None
    """The engine's session that stood here; it may be closed, or have gone on."""
    score: float = 0.0
    children: list[Thought] = field(default_factory=list)
    expanded: bool = False
    given_up: bool = False
    """Others were better; nobody comes back to it."""
    visits: int = 0
    """puct: scores that were seen here and below, and their sum."""
    total: float = 0.0

    @property
    def over(self) -> bool:
        return self.request is None

    @property
    def paid(self) -> list[float]:
        return [action.reward for action, _ in self.player.episode.turns]

    def path(self) -> Iterator[Thought]:
        """From here up to the root."""
        thought: Thought | None = self
        while thought is not None:
            yield thought
            thought = thought.mother

    def seed(self, sibling: int) -> int:
        """Seed of the ``sibling``-th action drawn here; the first ones all the way are what ReAct would do."""
        address = (*self.address, sibling)
        return self.player.job.seed(len(self.player.episode.turns), *(address if any(address) else ()))


@dataclass
class Search:
    """One search in progress."""

    job: Job
    settings: ToTSettings
    root: Thought
    additive: bool = True
    """Whether scores are what is still to be paid (`agents.rollout.search.scorers.Scorer`)."""
    discount: float = 1.0
    front: list[Thought] = field(default_factory=list)
    """Those that may be expanded next; of bfs, all of one depth. puct finds them by itself."""
    finished: list[Thought] = field(default_factory=list)
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

    def next_round(self) -> list[Thought]:
        """The states that are expanded now; none when the search is over."""
        chosen = [] if self._settled() else self._choose()
        affordable = (self.settings.nodes - self.nodes) // self.settings.branch if self.settings.nodes else len(chosen)
        chosen = chosen[: max(0, affordable)]
        self.rounds += bool(chosen)
        return chosen

    def grow(self, mother: Thought, children: Sequence[Thought], drawn: Sequence[Completion]) -> None:
        """Takes the children of an expanded state; ``drawn`` is all that was sampled for them."""
        mother.expanded, mother.children = True, list(children)
        self.nodes += len(drawn)
        self.tokens += sum(len(completion.tokens) for completion in drawn)

    def take(self, fresh: Sequence[Thought], scores: Sequence[float]) -> None:
        """Takes the scores of all children of a round, and gives up what is not among the best."""
        for thought, score in zip(fresh, scores, strict=True):
            thought.score = self._whole(thought, score)
        settings = self.settings
        if settings.search == Strategy.BFS:
            self.front = self._beam(fresh)
        elif settings.search == Strategy.BEST_FIRST:
            self.front = best([t for t in self.front if not t.expanded] + [t for t in fresh if not t.over])
            self.finished += [t for t in fresh if t.over]
        else:
            self.finished += [t for t in fresh if t.over]
            for thought in fresh:
                thought.visits, thought.total = 1, thought.score
            for mother in dict.fromkeys(t.mother for t in fresh if t.mother is not None):
                seen = sum(c.score * c.count for c in mother.children) / sum(c.count for c in mother.children)
                for above in mother.path():
                    above.visits += 1
                    above.total += seen
            self.front = [t for t in self.thoughts() if not (t.over or t.expanded)]

    def thoughts(self) -> Iterator[Thought]:
        """All states, depth first."""
        stack = [self.root]
        while stack:
            thought = stack.pop()
            yield thought
            stack.extend(reversed(thought.children))

    def answer(self) -> Thought:
        """The state that the search settles for: the best finished one, or, without any, the best that there is."""
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
        told = answer.player.episode
        return Searched(
            self.job,
            self.root.state,
            turns=list(zip(actions, path[1:], strict=True)),
            texts=list(told.texts),
            prompt=told.prompt,
            invalid=told.invalid,
            errors=told.errors,
            metrics=dict(told.metrics),
            rounds=self.rounds,
        )

    # -- choosing ------------------------------------------------------------------------------------------------

    def _whole(self, thought: Thought, score: float) -> float:
        """G(s) = sum discount^i r_i + discount^d V(s), where rewards are seen; of a finished path what it was paid."""
        if not self.additive or self.settings.rank == Rank.SCORE:
            return score
        paid = thought.paid
        owed = 0.0 if thought.over else self.discount ** len(paid) * score
        return sum(self.discount**i * reward for i, reward in enumerate(paid)) + owed

    def _beam(self, fresh: Sequence[Thought]) -> list[Thought]:
        if self.settings.rank == Rank.RETURN:
            self.finished += [t for t in fresh if t.over]
            return best([t for t in fresh if not t.over])[: self.settings.beam]
        # Nobody tells that a finished path is wrong: it keeps its place.
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

    def _choose(self) -> list[Thought]:
        if self.settings.search != Strategy.PUCT:
            return self.front[: self.settings.beam]
        open_ = {id(t) for leaf in self.front for t in leaf.path()}
        thought = self.root
        while thought.expanded:
            mother = thought
            thought = max((c for c in mother.children if id(c) in open_), key=lambda c: self._upper(mother, c))
        return [thought]

    def _upper(self, mother: Thought, child: Thought) -> float:
        """Q + explore P sqrt(N) / (1 + n), with P the share of the draws in the mother that led here."""
        prior = child.count / self.settings.branch
        return child.total / child.visits + self.settings.explore * prior * math.sqrt(mother.visits) / (
            1 + child.visits
        )


def best(thoughts: Sequence[Thought]) -> list[Thought]:
    """The highest score first; of equal ones that which was drawn first."""
    return sorted(thoughts, key=lambda t: -t.score)
