"""Settings of a worker: how episodes are played. Imports no torch."""

from dataclasses import dataclass
from typing import Any

from agent_envs.isolation.settings import HostSettings
from agents.engine.registry import EngineChoice
from agents.rollout.registry import AgentChoice
from agents.rollout.settings import FaultSettings, ReActSettings


@dataclass(frozen=True)
class PlaySettings:
    """Environment, agent, faults and size of a rollout."""

    env: str
    env_settings: Any
    react: ReActSettings
    hosts: HostSettings
    faults: FaultSettings
    slots: int
    exact: bool
    engine: EngineChoice = EngineChoice()  # noqa: RUF009 (it is frozen)
    agent: AgentChoice = AgentChoice()  # noqa: RUF009
