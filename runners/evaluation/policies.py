"""Policies that are measured: a model, or a run's base and trained policy, ready to play."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agent_envs import registry
from agents.model.actor_critic import ActorCritic
from agents.model.adapter_io import HEAD_FILE
from agents.model.separate_critic import FILE as CRITIC_FILE
from agents.model.state_values import Critic
from agents.text.settings import ChatSettings
from algorithms.base import Algorithm
from runners.cloning.settings import PretrainSettings
from runners.command_line.errors import UserError
from runners.loading.base_model import Base, BaseSpec, actor_of, device_of, load_base, source_of
from runners.loading.engine import in_this_process
from runners.run_folder.runs import locate, run_folder
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers
from runners.workers.worker import PlaySettings, Worker


@dataclass(frozen=True)
class Policies:
    """A worker, and the adapters that it can load, by name (None is the base model)."""

    worker: Worker
    adapters: Mapping[str, Mapping[str, torch.Tensor] | None]
    critic: Critic | None = None
    """That of the trained policy."""
    algorithm: Algorithm[Any] | None = None
    """The algorithm that trained it."""
    base: Base | None = None
    """The model, where no run trained it."""
    dtype: str = "float32"
    """Type of the weights, as it was asked for."""

    @contextmanager
    def playing(self) -> Iterator[Controller]:
        """A controller of the worker, which is closed at the end; no policy is loaded yet."""
        workers = LocalWorkers(lambda: self.worker)
        try:
            yield Controller(workers, self.worker.settings.slots, self.worker.settings.faults)
        finally:
            workers.close()


def load_policies(
    model: str,
    play: PlaySettings,
    console: Console,
    *,
    device: str = "auto",
    dtype: str | None = None,
    chat: ChatSettings | None = None,
    pretrain: PretrainSettings | None = None,
) -> Policies:
    """The policies of ``model``: a run folder or checkpoint, `tiny`, or a Hugging Face folder or hub name.

    ``chat`` and ``pretrain`` act for models that no run trained, whose weights are float32 unless ``dtype`` names
    another type; a run is played as it was trained. The worker is in this process. Raises UserError.
    """
    play = replace(play, engine=in_this_process(play.engine, console))
    device_of(device)  # before the tiny model is made
    if run_folder(Path(model)) is None:
        chat = chat or ChatSettings()
        source = source_of(model, list(registry.make_all(play.envs).values()), pretrain, chat, console)
        base = load_base(BaseSpec(source, device, dtype or "float32", chat), console)
        worker = Worker(base.model, base.chat, play, base.source)
        return Policies(worker, {"model": None}, base=base, dtype=dtype or "float32")
    run, chosen = locate(Path(model), console)
    if dtype not in (None, run.train.dtype):
        raise UserError(f"{run.folder} was trained in {run.train.dtype}: leave --dtype {dtype} out")
    base = run.base(console, device, run.train.dtype)
    critic = None
    if any((chosen / name).exists() for name in (HEAD_FILE, CRITIC_FILE)):
        actor, prompt = actor_of(base, run.settings)
        critic = Critic(actor, prompt)
    else:
        actor = ActorCritic(base.model, run.settings.lora, critic=None)
    actor.load(chosen)
    worker = Worker(actor.model, base.chat, play, base.source, critic)
    adapters = {"base": None, "trained": actor.policy_state()}
    return Policies(worker, adapters, critic, run.settings.algorithm, dtype=run.train.dtype)
