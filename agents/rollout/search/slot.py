"""One search in play: its environments, what is being sampled for it, and how its states come to be.

Invariant: an environment is used by one state at a time. A search that loses the host of an environment, by no fault of
its own, goes on exactly where it was. `SearchSlot.expand` runs in one of the threads of `calls`; everything else does
not.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TypeVar

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, HostLost, Stage, blamed
from agents.engine.base import Completion, Request
from agents.rollout.react import ReAct
from agents.rollout.search.strategy import Search, SearchNode
from agents.rollout.slot import MakeEnv, Slot, close_all, rejoined
from agents.tree.episode import Job

T = TypeVar("T")


@dataclass
class Draw:
    """An action that was sampled in a state, and how many of the state's actions were the same."""

    sibling: int
    session: int
    completion: Completion
    count: int = 1


@dataclass
class Expansion:
    """What is being sampled in a state."""

    parent: SearchNode
    sessions: list[int]
    """One for each action."""
    done: dict[int, Completion] = field(default_factory=dict)

    def draws(self) -> list[Draw]:
        """The different actions, each as it was drawn first."""
        different: dict[object, Draw] = {}
        for sibling, session in enumerate(self.sessions):
            completion = self.done[session]
            action = completion.tokens, completion.stop
            if (twin := different.get(action)) is not None:
                twin.count += 1
            else:
                different[action] = Draw(sibling, session, completion)
        return list(different.values())


@dataclass
class Expanded:
    """The players in the states after the actions of a state, with their next requests; or what broke."""

    children: list[tuple[Draw, ReAct, Request | None]] = field(default_factory=list)
    fault: EnvFault | None = None
    broken: list[PlayableEnv] = field(default_factory=list)
    """Environments that must not be used again."""


class SearchSlot(Slot):
    """One search in play."""

    def __init__(self, session: int, job: Job, make_env: MakeEnv, env: PlayableEnv | None = None) -> None:
        super().__init__(session, job, make_env, env)
        self.began = monotonic()
        self._search: Search | None = None
        self.round: list[SearchNode] = []
        """The states that are being expanded, in the order in which they were chosen."""
        self.awaited = 0
        """States of this round that are not expanded yet."""
        self.sessions: set[int] = set()
        """Those that are open."""
        self.fault: EnvFault | None = None
        self.unused: list[PlayableEnv] = []
        """Environments of states that were given up."""

    @property
    def search(self) -> Search:
        """There from the first round on."""
        assert self._search is not None
        return self._search

    @search.setter
    def search(self, search: Search) -> None:
        self._search = search

    @property
    def fresh(self) -> list[SearchNode]:
        """The children of this round's states."""
        return [child for parent in self.round for child in parent.children]

    def expand(self, parent: ReAct, draws: Sequence[Draw], unused: Sequence[PlayableEnv]) -> Expanded:
        """Does each of ``draws`` in its own copy of the environment in which ``parent`` stands; closes ``unused``."""
        close_all(unused)
        expanded = Expanded()
        player = parent
        try:
            for i, draw in enumerate(draws):
                # The last one takes the environment itself.
                env = parent.env if i == len(draws) - 1 else self.steadily(parent, partial(_copy, parent))
                player = parent.fork(env, self.job, draw.session)
                request = self.steadily(player, partial(player.turn, draw.completion))
                expanded.children.append((draw, player, request))
        except EnvFault as fault:
            expanded.fault, expanded.broken = fault, [parent.env, player.env]
        return expanded

    def steadily(self, player: ReAct, call: Callable[[], T]) -> T:
        """``call``, again in a fresh environment where its host was lost. Raises EnvFault."""
        while True:
            try:
                return call()
            except HostLost:
                with contextlib.suppress(Exception):  # it is gone
                    player.env.close()
                rejoined(player, self.make_env)

    def abandon(self) -> None:
        close_all(self.standing())
        super().abandon()

    def standing(self) -> list[PlayableEnv]:
        """The environments of all states; they are the caller's from now on."""
        standing, self.unused = self.unused, []
        if self._search is not None:
            nodes = self.search.nodes_so_far()
            standing += [n.player.env for n in nodes if not (n.expanded or n.over or n.given_up)]
        return [env for env in standing if env is not self.env]


def _copy(player: ReAct) -> PlayableEnv:
    with blamed(Stage.FORK):
        return player.env.fork()
