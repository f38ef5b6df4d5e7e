"""One rollout worker: an engine, a chat and environments. Both backends run this class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from peft import PeftModel
from transformers import PreTrainedModel

from agent_envs import registry
from agent_envs.hosts import EnvHosts, HostSettings
from agents.chat import Chat
from agents.engine.hf import HFEngine
from agents.react import ReActSettings
from agents.rollout import FaultSettings, Played, rollout
from runners.workers.base import BASE_MODEL, Spec, StaleWorker, check_sum


@dataclass(frozen=True)
class PlaySettings:
    """How episodes are played, whoever plays them."""

    env: str
    env_settings: Any
    react: ReActSettings
    hosts: HostSettings
    faults: FaultSettings
    slots: int
    exact: bool


class Worker:
    """Plays portions, one at a time."""

    def __init__(self, model: PreTrainedModel | PeftModel, chat: Chat, settings: PlaySettings) -> None:
        self.settings, self.chat = settings, chat
        self.engine = HFEngine(
            model, chat.stop_ids, max_length=settings.react.max_tokens, slots=settings.slots, device=model.device
        )
        self.version: int | None = None
        # Here there is no deadline yet.
        registry.make(settings.env, settings.env_settings).prepare()
        self.hosts = EnvHosts(partial(registry.env_class(settings.env), settings.env_settings), settings.hosts)

    def load(self, version: int, adapter: bytes, sha256: str) -> None:
        """Raises ValueError when the bytes have another hash; the policy is then as before."""
        check_sum(adapter, sha256)
        self.engine.load(version, None if adapter == BASE_MODEL else adapter)
        self.version = version

    def play(self, spec: Spec, version: int, on_end: Callable[[], None] | None = None) -> Played:
        """Raises StaleWorker when the loaded policy is another one."""
        if self.version != version:
            raise StaleWorker(f"policy {version} was asked for, and the worker has {self.version}")
        self.engine.sampling = spec.sampling
        return rollout(
            self.hosts.make,
            self.engine,
            self.chat,
            spec.jobs,
            self.settings.react,
            plan=spec.plan,
            faults=self.settings.faults,
            exact=self.settings.exact,
            on_episode=lambda _: on_end() if on_end else None,
        )

    def close(self) -> None:
        self.hosts.close()
