"""Settings of a worker: how episodes are played. Imports no torch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.isolation.host_process import HostSettings
from agents.engine.registry import EngineChoice
from agents.rollout.registry import AgentChoice
from agents.rollout.settings import FaultSettings, ReActSettings


@dataclass(frozen=True)
class PlaySettings:
    """Environments, agent, faults and size of a rollout."""

    envs: Mapping[str, Any]
    """Settings of each environment, by its name. Where there are several, each job names its own (`Job.env`)."""
    react: ReActSettings
    hosts: HostSettings
    faults: FaultSettings
    slots: int
    exact: bool
    engine: EngineChoice = EngineChoice()  # noqa: RUF009 (it is frozen)
    agent: AgentChoice = AgentChoice()  # noqa: RUF009


def check_envs(names: Sequence[str]) -> None:
    """Raises ValueError unless they are the names of one environment or several."""
    if not names:
        raise ValueError("env needs the name of an environment")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"env names {twice[0]} twice: each environment has one set of settings")


def with_list(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a settings file, in which one environment may stand without a list."""
    return {**values, "env": [values["env"]]} if isinstance(values.get("env"), str) else dict(values)


def job_env(name: str, among: Collection[str]) -> str:
    """What the jobs of an environment call it (`Job.env`): its name, or nothing where it is the only one."""
    return name if len(among) > 1 else ""
