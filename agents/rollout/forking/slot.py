"""A job of a task whose episodes fork: how it is copied.

Invariant: a slot that loses the host of its environment, by no fault of its own, goes on exactly where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_envs.isolation.faults import EnvFault, HostLost, Stage, blamed
from agents.engine.base import Completion, Request
from agents.rollout.slot import Slot, rejoined
from agents.tree.episode import Job


class ForkSlot(Slot):
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
        self.env = rejoined(self.player, self.make_env)

    def fork(self, forks: Sequence[Fork]) -> EnvFault | None:
        """Gives each of ``forks`` its slot, or the fault that kept it from one; returns what broke this slot."""
        for i, fork in enumerate(forks):
            try:
                fork.slot = self._copy(fork)
            except EnvFault as error:
                fork.fault = error
                try:
                    self.restore()  # an environment that could not be copied is of no further use
                except EnvFault as end:
                    for unmade in forks[i + 1 :]:
                        unmade.fault = end
                    return end
        return None

    def _copy(self, fork: Fork) -> ForkSlot:
        assert self.env is not None
        player = self.player.fork(self.env, fork.job, fork.session)
        try:
            with blamed(Stage.FORK):
                player.env = self.env.fork()
        except HostLost:
            rejoined(player, self.make_env)
        return ForkSlot(fork.session, fork.job, self.make_env, player.env, player)


@dataclass
class Fork:
    """A fork that is about to be in play, or what broke it."""

    session: int
    job: Job
    slot: ForkSlot | None = None
    fault: EnvFault | None = None
