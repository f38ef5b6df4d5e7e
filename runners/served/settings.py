"""Settings of an evaluation over an endpoint. Imports no torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from agent_envs import registry
from agent_envs.core import SPLITS
from agent_envs.isolation.host_process import HostSettings
from agent_envs.ranges import check_name, check_ranges
from agents.endpoint.address import check_address
from agents.endpoint.settings import ServedSettings
from agents.engine.base import SamplingSettings
from agents.rollout.settings import FaultSettings, ReActSettings
from runners.command_line.plain import dump_json, plain
from runners.settings.play_settings import check_envs


class Engine(StrEnum):
    """How the model is reached."""

    OPENAI = "openai"


@dataclass(frozen=True)
class EvaluateServed:
    """Measure a model behind an OpenAI-compatible endpoint on held-out tasks."""

    endpoint: str = ""
    """Address before /chat/completions, as http://127.0.0.1:8000/v1. Its key is read from DASHSCOPE_API_KEY,
    OPENAI_API_KEY, or for other hosts TURNWISE_KEY_HOST, as in TURNWISE_KEY_API_EXAMPLE_COM."""
    model: str = ""
    """Name of the model there."""
    env: tuple[str, ...] = ()
    """Environment to measure on, or several, one after the other; the settings of each are the flags --ENV.…. By
    default the wiki."""
    split: str = "test"
    """Split of the tasks: train, valid or test."""
    tasks: int = 500
    """Tasks of each environment, spread evenly over the split."""
    samples: int = 4
    """Sampled episodes per task, for pass@k (the greedy measurement plays one)."""
    temperature: float = 1.0
    """Temperature of the sampled episodes."""
    seed: int = 0
    """Seed of the episodes; a seed is also sent with every request."""
    out: Path | None = None
    """Folder for the episodes and the result, by default runs/served-MODEL-…, named by what is measured. The same
    command goes on with what is there."""
    engine: Engine = Engine.OPENAI
    """openai: an OpenAI-compatible endpoint."""

    def __post_init__(self) -> None:
        check_ranges(self, tasks=1, samples=(1, 10_000), seed=(0, 2**63 - 1))
        check_name(self, "split", SPLITS)
        SamplingSettings(self.temperature)
        if self.env:
            check_envs(self.env)
        if self.endpoint:
            check_address(self.endpoint, "endpoint")

    @property
    def envs(self) -> list[str]:
        return list(self.env) or ["wiki"]

    @staticmethod
    def choices() -> dict[str, Sequence[str]]:
        """The names that a flag can take, for ``--help``."""
        return {"env": registry.names()}


def parts_of(evaluate: EvaluateServed) -> dict[str, type]:
    """Settings classes by the prefix of their flags."""
    parts: dict[str, type] = {"served": ServedSettings}
    parts |= {env: registry.env_class(env).Config for env in evaluate.envs}
    return parts | {"react": ReActSettings, "envs": HostSettings, "faults": FaultSettings}


_ASKING = ("concurrent", "rate", "price_prompt", "price_completion", "timeout", "patience", "max_retries")
"""Settings of `ServedSettings` that change how, and not what, the model is asked."""


def measured(evaluate: EvaluateServed, parts: Mapping[str, Any], env: str) -> dict[str, Any]:
    """All that an episode of ``env`` depends on but its task, its number and what the server does."""
    served = {key: value for key, value in plain(parts["served"]).items() if key not in _ASKING}
    names = ("endpoint", "model", "split", "temperature", "seed")
    own = {name: plain(getattr(evaluate, name)) for name in names}
    return {**own, "env": env, env: plain(parts[env]), "react": plain(parts["react"]), "served": served}


def fingerprint(what: Mapping[str, Any]) -> str:
    """A short name of settings; it changes whenever one of them does."""
    return sha256(dump_json(what).encode()).hexdigest()[:12]


def folder_of(evaluate: EvaluateServed, parts: Mapping[str, Any]) -> Path:
    """The folder that is named, or one that the same settings always lead to."""
    if evaluate.out is not None:
        return evaluate.out
    every = fingerprint({env: measured(evaluate, parts, env) for env in evaluate.envs})
    return Path("runs") / f"served-{re.sub(r'[^A-Za-z0-9.-]+', '-', evaluate.model).strip('.-')}-{every}"
