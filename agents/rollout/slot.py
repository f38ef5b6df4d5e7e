"""A job in play: its environment, its player, and how it goes on in a fresh environment.

Invariant: the methods of a slot run in one of the threads of `calls`, one at a time.
"""

import contextlib
from collections.abc import Callable, Iterable
from itertools import zip_longest

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, HostLost, Stage, blamed
from agent_envs.isolation.hosts import RemoteEnv
from agents.engine.base import Completion, Request
from agents.rollout.env_half import EnvHalf
from agents.rollout.react import ReAct
from agents.tree.episode import Episode, Job

MakeEnv = Callable[[], PlayableEnv]


class Slot:
    """One job in play. It has an environment of its own."""

    def __init__(
        self, session: int, job: Job, make_env: MakeEnv, env: PlayableEnv | None = None, player: ReAct | None = None
    ) -> None:
        self.session, self.job, self.make_env, self.env = session, job, make_env, env
        self._player = player
        self.open = False
        """Whether the engine has a session of this number."""

    @property
    def player(self) -> ReAct:
        """Who plays; there once the slot has begun."""
        assert self._player is not None
        return self._player

    @property
    def record(self) -> Episode | None:
        """The episode after its last whole turn; None before there is one."""
        episode = getattr(self._player, "episode", None)
        return episode if episode is not None and episode.turns else None

    def begin(self, play: Callable[[PlayableEnv, Job, int], ReAct], standing: Episode | None = None) -> Request | None:
        """The first request; an episode that was cut goes on from where it is ``standing``."""
        if self.env is None:
            with blamed(Stage.MAKE):
                self.env = self.make_env()
        self._player = play(self.env, self.job, self.session)
        return self._player.start() if standing is None else self._player.resume(standing)

    def begin_turn(self, completion: Completion) -> None:
        """Has the process of the environment begin on `turn`."""
        self.player.begin_act(completion)

    def turn(self, completion: Completion) -> Request | None:
        return self.player.turn(completion)

    def abandon(self) -> None:
        """Closes an environment that is broken or no longer needed."""
        if self.env is not None:
            close_all([self.env])


def rejoined(player: EnvHalf, make_env: MakeEnv) -> PlayableEnv:
    """A fresh environment in which ``player`` can go on where it was. Raises EnvFault."""
    while True:
        with blamed(Stage.MAKE):
            env = make_env()
        try:
            player.rejoin(env)
            return env
        except HostLost:
            env.close()
        except EnvFault:
            close_all([env])
            raise


def close_all(envs: Iterable[PlayableEnv]) -> None:
    """Closes environments, broken ones too."""
    for env in envs:
        with contextlib.suppress(Exception):
            env.close()


def process_of(env: PlayableEnv | None) -> object | None:
    """What stands for the process of an environment that does not live in this one."""
    return env.process if isinstance(env, RemoteEnv) else None


def in_turn(envs: Iterable[PlayableEnv]) -> list[PlayableEnv]:
    """Those that live, a process after the other, so that a few episodes do not wait for one process; closes others."""
    by_process: dict[object, list[PlayableEnv]] = {}
    for env in envs:
        by_process.setdefault(process_of(env) or id(env), []).append(env)
    for process, ours in list(by_process.items()):
        if isinstance(ours[0], RemoteEnv) and ours[0].gone:
            close_all(by_process.pop(process))
    return [env for turn in zip_longest(*by_process.values()) for env in turn if env is not None]
