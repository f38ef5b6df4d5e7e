"""Which settings classes act in a training run, and under which prefix their flags stand."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent_envs import registry
from agent_envs.isolation.host_process import HostSettings
from agents.engine.registry import ENGINES
from agents.judge import JudgeSettings
from agents.model.settings import CriticSettings, LoraSettings, SeparateCriticSettings
from agents.rollout.registry import AGENTS
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.text.settings import ChatSettings
from algorithms import algorithm_class
from runners.cloning.settings import TINY, PretrainSettings
from runners.settings.ray_settings import RaySettings

PREFIXES = {"hosts": "envs"}
"""Flag prefixes that differ from the field of `RunSettings`."""
NAMED = {"algorithm": "algo", "engine": "engine", "agent": "agent"}
"""Fields of `RunSettings` whose prefix is a name: the field of `Train` that holds it."""


class Choices(Protocol):
    """What decides which parts act: these fields of `runners.settings.train_settings.Train`."""

    @property
    def env(self) -> tuple[str, ...]: ...
    @property
    def algo(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def init_from(self) -> Path | None: ...
    @property
    def backend(self) -> tuple[str, int]: ...


@dataclass(frozen=True)
class Acting:
    """A part that acts in a run."""

    part: str
    """Its field of `RunSettings`."""
    prefix: str
    """The prefix of its flags, as Python spells names."""
    settings: type
    env: str = ""
    """The name of the environment that it is; empty for other parts."""


def acting(train: Choices) -> list[Acting]:
    """The parts that act in a run with these choices, the environments first. Raises ValueError for unknown names."""
    algorithm = algorithm_class(train.algo)
    needs = algorithm().needs
    envs = [Acting("env", _prefix(name), registry.env_class(name).Config, name) for name in train.env]
    own: dict[str, type] = {
        "algorithm": algorithm,
        "lora": LoraSettings,
        "react": ReActSettings,
        "hosts": HostSettings,
        "faults": FaultSettings,
    }
    if (agent := AGENTS.get(train.agent).Config) is not None:
        own["agent"] = agent
    if needs.critic:
        own["critic"] = CriticSettings
    if needs.token_critic:
        own["critic"] = SeparateCriticSettings
    if needs.judge:
        own["judge"] = JudgeSettings
    if train.init_from is None:
        own["chat"] = ChatSettings
    if train.model == TINY and train.init_from is None:
        own["pretrain"] = PretrainSettings
    if train.backend[0] == "ray":
        own["ray"] = RaySettings
    own["engine"] = ENGINES.get(train.engine).Config
    named = {part: _prefix(getattr(train, field)) for part, field in NAMED.items()}
    prefixes = {**PREFIXES, **named}
    return envs + [Acting(part, prefixes.get(part, part), settings) for part, settings in own.items()]


def _prefix(name: str) -> str:
    return name.replace("-", "_")
