"""One search in play: its environments, what is being sampled for it, and how its states come to be.

Invariant: an environment is used by one state at a time. Whoever loses the host of its environment, by no fault of its
own, goes on exactly where it was. `SearchSeat.expand` runs in a thread of the pool; everything else does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TypeVar

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, HostLost, Stage, blamed
from agents.engine.base import Completion, Request
from agents.rollout.forking.slots import BranchingSeat
from agents.rollout.react import ReAct
from agents.rollout.search.tree import Search, Thought
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

    mother: Thought
    sessions: list[int]
    """One for each action."""
    done: dict[int, Completion] = field(default_factory=dict)

    def draws(self) -> list[Draw]:
        """The different actions, the one that was drawn first of each kind standing for it."""
        kinds: dict[object, Draw] = {}
        for sibling, session in enumerate(self.sessions):
            completion = self.done[session]
            kind = completion.tokens, completion.stop
            if (twin := kinds.get(kind)) is not None:
                twin.count += 1
            else:
                kinds[kind] = Draw(sibling, session, completion)
        return list(kinds.values())


@dataclass
class Grown:
    """The players in the states after the actions of a state, with what they ask next; or what broke."""

    children: list[tuple[Draw, ReAct, Request | None]] = field(default_factory=list)
    fault: EnvFault | None = None
    broken: list[PlayableEnv] = field(default_factory=list)
    """Environments that nobody must use any more."""


class SearchSeat(BranchingSeat):
    """One search in play."""

    def __init__(
        self,
        session: int,
        job: Job,
        make_env: Callable[[], PlayableEnv],
        env: PlayableEnv | None = None,
        player: ReAct | None = None,
    ) -> None:
        super().__init__(session, job, make_env, env, player)
        self.began = monotonic()
        self._search: Search | None = None
        self.round: list[Thought] = []
        """The states that are being expanded, in the order in which they were chosen."""
        self.sampling: dict[int, Expansion] = {}
        """Whom the engine samples for, by session."""
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

    @property
    def fresh(self) -> list[Thought]:
        """The children of this round's states."""
        return [child for mother in self.round for child in mother.children]

    def expand(self, mother: ReAct, draws: Sequence[Draw], unused: Sequence[PlayableEnv]) -> Grown:
        """Does each of ``draws`` in its own copy of the environment in which ``mother`` stands; closes ``unused``."""
        close_all(unused)
        grown = Grown()
        player = mother
        try:
            for i, draw in enumerate(draws):
                # The last one takes the environment itself.
                env = mother.env if i == len(draws) - 1 else self.steadily(mother, partial(forked, mother))
                player = mother.fork(env, self.job, draw.session)
                request = self.steadily(player, partial(player.turn, draw.completion))
                grown.children.append((draw, player, request))
        except EnvFault as fault:
            grown.fault, grown.broken = fault, [mother.env, player.env]
        return grown

    def steadily(self, player: ReAct, call: Callable[[], T]) -> T:
        """``call``, again in a fresh environment where its host was lost. Raises EnvFault."""
        while True:
            try:
                return call()
            except HostLost:
                with contextlib.suppress(Exception):  # it is gone
                    player.env.close()
                self.rejoined(player)

    def abandon(self) -> None:
        close_all(self.standing())
        super().abandon()

    def standing(self) -> list[PlayableEnv]:
        """The environments of all states; they are the caller's from now on."""
        standing, self.unused = self.unused, []
        if self._search is not None:
            standing += [t.player.env for t in self.search.thoughts() if not (t.expanded or t.over or t.given_up)]
        return [env for env in standing if env is not self.env]


def forked(player: ReAct) -> PlayableEnv:
    with blamed(Stage.FORK):
        return player.env.fork()


def close_all(envs: Sequence[PlayableEnv]) -> None:
    """Closes environments that nobody needs any more, broken ones too."""
    for env in envs:
        with contextlib.suppress(Exception):
            env.close()
