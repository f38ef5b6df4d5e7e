"""``python -m runners.workers.serve``: one rollout worker in a process of its own; `process` starts it.

Both ends are this program, joined by a private socket, so messages are pickled; what an environment says has crossed
its own host's boundary as JSON before it gets here.
"""

import gc
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from agent_envs.core import SettingsError
from agent_envs.isolation.child import Channel, connect
from agents.model.actor_critic import ActorCritic
from agents.model.settings import CriticSettings, LoraSettings
from agents.model.state_values import Critic
from agents.rollout.play import Stalled
from agents.text.errors import ChatError, ModelError
from runners.command_line.errors import UserError
from runners.loading.base_model import BaseSpec, load_base
from runners.workers.base import StaleWorker
from runners.workers.worker import PlaySettings, Worker

_TELL_EVERY = 0.25
"""Seconds between two messages about ended episodes: on Ray each is a remote call, and both ends pay for it."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker's process gets when it starts."""

    base: BaseSpec
    lora: LoraSettings
    play: PlaySettings
    threads: int = 1
    critic: CriticSettings | None = None
    """The critic that leads searches, where there are any."""

    def make(self) -> Worker:
        base = load_base(self.base)
        model = ActorCritic(base.model, self.lora, critic=self.critic)
        leader = None if self.critic is None else Critic(model, base.chat.critic_prompt(self.critic.prompt))
        return Worker(model.model, base.chat, self.play, base.source, leader, merged=bool(self.base.merged))


class _Ended:
    """Tells the other end how many episodes ended since it was last told."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell, self._count, self._last = tell, 0, time.monotonic()

    def one(self) -> None:
        self._count += 1
        if time.monotonic() - self._last >= _TELL_EVERY:
            self.rest()

    def rest(self) -> None:
        if self._count:
            self._tell("ended", self._count)
        self._count, self._last = 0, time.monotonic()


def serve(channel: Channel) -> None:
    """Answers until the parent is gone."""

    def tell(*message: object) -> None:
        channel.send_bytes(pickle.dumps(message))

    try:
        setup: WorkerSetup = pickle.loads(channel.recv_bytes())
        torch.set_num_threads(setup.threads)
        worker = setup.make()
        gc.freeze()  # what was loaded stays: collections need not look at it again
        tell("done", worker.engine.describe())
        while True:
            method, *arguments = pickle.loads(channel.recv_bytes())
            if method == "load":
                worker.load(*arguments)
                tell("done", None)
            else:
                spec, version = arguments
                ended = _Ended(tell)
                try:
                    played = worker.play(spec, version, ended.one)
                    ended.rest()
                    tell("done", played)
                except StaleWorker as error:
                    tell("stale", str(error))
    except EOFError:
        pass
    except (UserError, SettingsError, ModelError, ChatError, Stalled, ValueError) as error:
        tell("refused", str(error))
    except Exception:
        traceback.print_exc()  # the parent keeps the last lines of what is printed here
        raise SystemExit(1) from None


if __name__ == "__main__":
    serve(connect())
