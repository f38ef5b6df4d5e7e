"""Policies that are measured: a model, or a run's base and trained policy, ready to play."""

from collections.abc import Mapping
from dataclasses import dataclass
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
from runners.loading.actor import actor_of
from runners.loading.base_model import BaseSpec, device_of, load_base, source_of
from runners.run_folder.runs import base_of, locate, run_folder
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


def load_policies(
    model: str,
    play: PlaySettings,
    console: Console,
    *,
    device: str = "auto",
    dtype: str = "float32",
    chat: ChatSettings | None = None,
    pretrain: PretrainSettings | None = None,
) -> Policies:
    """The policies of ``model``: a run folder or checkpoint, `tiny`, or a Hugging Face folder or hub name.

    ``chat`` and ``pretrain`` act for models that no run trained. Raises UserError.
    """
    device_of(device)  # before the tiny model is made
    if run_folder(Path(model)) is None:
        source = source_of(model, registry.make(play.env, play.env_settings), pretrain, console)
        base = load_base(BaseSpec(source, device, dtype, chat or ChatSettings()))
        return Policies(Worker(base.model, base.chat, play, base.source), {"model": None})
    run, chosen = locate(Path(model), console)
    base = load_base(base_of(run.settings, console, device, dtype))
    run.check(base)
    critic = None
    if any((chosen / name).exists() for name in (HEAD_FILE, CRITIC_FILE)):
        actor, prompt = actor_of(base, run.settings)
        critic = Critic(actor, prompt)
    else:
        actor = ActorCritic(base.model, run.settings.lora, critic=None)
    actor.load(chosen)
    worker = Worker(actor.model, base.chat, play, base.source, critic)
    return Policies(worker, {"base": None, "trained": actor.policy_state()}, critic, run.settings.algorithm)
