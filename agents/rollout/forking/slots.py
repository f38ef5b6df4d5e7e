"""A job of a task whose episodes fork: how it is copied, and how it is taken up again in a fresh environment.

Invariant: whoever loses the host of its environment, by no fault of its own, goes on exactly where it was. The methods
of a seat run in a thread of the pool.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, HostLost, Stage, blamed
from agents.engine.base import Completion, Request
from agents.rollout.react import ReAct
from agents.rollout.scheduler import Seat
from agents.tree.episode import Job


@dataclass
class Newborn:
    """A fork that is about to be in play, or what broke it."""

    session: int
    job: Job
    seat: Seat | None = None
    fault: EnvFault | None = None


class BranchingSeat(Seat):
    """A job of a task whose episodes fork."""

    def turn(self, completion: Completion) -> Request | None:
        while True:
            try:
                return self.player.turn(completion)
            except HostLost:
                self.restore()

    def restore(self) -> None:
        """Takes a fresh environment and brings it to where the episode stands. Raises EnvFault."""
        self.abandon()
        self.env = self.rejoined(self.player)

    def rejoined(self, player: ReAct) -> PlayableEnv:
        """A fresh environment in which ``player`` can go on. Raises EnvFault."""
        while True:
            with blamed(Stage.MAKE):
                env = self.make_env()
            try:
                player.rejoin(env)
                return env
            except HostLost:
                env.close()
            except EnvFault:
                with contextlib.suppress(Exception):  # it is known to be broken
                    env.close()
                raise

    def bear(self, children: Sequence[Newborn]) -> EnvFault | None:
        """Gives each of ``children`` its seat, or the fault that kept it from one; returns what broke this seat."""
        for i, child in enumerate(children):
            try:
                child.seat = self.twin(child)
            except EnvFault as error:
                child.fault = error
                try:
                    self.restore()  # an environment that could not be copied is of no further use
                except EnvFault as end:
                    for orphan in children[i + 1 :]:
                        orphan.fault = end
                    return end
        return None

    def twin(self, child: Newborn) -> Seat:
        assert self.env is not None
        player = self.player.fork(self.env, child.job, child.session)
        try:
            with blamed(Stage.FORK):
                player.env = self.env.fork()
        except HostLost:
            self.rejoined(player)
        return BranchingSeat(child.session, child.job, self.make_env, player.env, player)
