"""The settings of ``turnwise bench``. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent_envs.isolation.host_process import HostSettings
from agent_envs.ranges import check_name, check_ranges
from agents.endpoint.address import check_address
from agents.endpoint.settings import ServedSettings
from agents.rollout.settings import FaultSettings, ReActSettings
from runners.benching.suites import SUITES, Suite
from runners.command_line.errors import UserError
from runners.inference.evaluate_settings import Evaluate
from runners.inference.evaluate_settings import parts_of as evaluate_parts
from runners.settings.train_settings import DTYPES


class Baseline(StrEnum):
    """An agent without a model."""

    RANDOM = "random"
    EXPERT = "expert"


_LOCAL = {"device": "auto", "dtype": None, "slots": 128, "threads": 1}
"""Settings that act on a model in this process only, with their defaults."""


@dataclass(frozen=True)
class Bench:
    """Measure one agent on a named suite of fixed tasks. Models play each task once and take their best token."""

    suite: str = ""
    """Suite to play; --list shows them."""
    agent: Baseline | None = None
    """An agent without a model: random (draws from the valid turns where an environment lists them) or expert. Where
    nothing is named, random plays."""
    model: str = ""
    """A run folder (its trained policy), `tiny`, a Hugging Face folder or hub name, or a served model's name."""
    endpoint: str = ""
    """Address of a server for the model, as http://127.0.0.1:8000/v1."""
    tasks: int | None = None
    """Most tasks of each entry, to try things out; the row then says that it is not the suite's."""
    seed: int = 0
    """Seed of the random agent and of the environments."""
    out: Path | None = None
    """File for everything as JSON: suite, fingerprints, results of every task, costs, hardware, versions."""
    list: bool = False
    """Show the suites and their entries; nothing is played."""
    kept: Path | None = None
    """Folder for the episodes of a served model, by default runs/bench-SUITE-MODEL-…; the same command goes on with
    them."""
    slots: int = 128
    """Episodes played at once by a model in this process."""
    device: str = "auto"
    """Device of a model in this process: auto, cpu, cuda, …"""
    dtype: str | None = None
    """Type of its weights: float32, bfloat16, float16 or auto (as saved); by default that of the run's training, or
    float32."""
    threads: int = 1
    """Threads of torch in this process."""

    def __post_init__(self) -> None:
        check_ranges(self, slots=(1, 65_536), threads=(1, 1024), seed=(0, 2**63 - 1))
        if self.dtype is not None:
            check_name(self, "dtype", DTYPES)
        if self.tasks is not None:
            check_ranges(self, tasks=1)
        if self.suite:
            check_name(self, "suite", list_of_names())
        if self.endpoint:
            check_address(self.endpoint, "endpoint")

    @property
    def baseline(self) -> Baseline | None:
        """The agent without a model that plays; None where a model does."""
        return self.agent or (None if self.model or self.endpoint else Baseline.RANDOM)

    @staticmethod
    def choices() -> dict[str, Sequence[str]]:
        """The names that a flag can take, for ``--help``."""
        return {"suite": list_of_names()}


def list_of_names() -> list[str]:
    """The names of the suites."""
    return [*SUITES]


def parts_of(bench: Bench) -> dict[str, Any]:
    """Settings by prefix: those of a model, and none of an agent without one. Environments have the suite's."""
    if bench.baseline is not None or not bench.model or not bench.suite:
        return {}
    if bench.endpoint:
        return {"served": ServedSettings, "react": ReActSettings, "envs": HostSettings, "faults": FaultSettings}
    envs = envs_of(SUITES[bench.suite])
    parts = evaluate_parts(Evaluate(env=envs, model=bench.model))
    return {name: part for name, part in parts.items() if name not in envs}


def envs_of(suite: Suite) -> tuple[str, ...]:
    """The names of a suite's environments, each once."""
    return tuple(dict.fromkeys(entry.env for entry in suite.entries))


def check(bench: Bench, parts: Mapping[str, Any]) -> None:
    """Raises UserError for what is missing or has no effect."""
    if not bench.suite:
        raise UserError(f"name a suite: --suite {list_of_names()[0]}; turnwise bench --list shows them")
    if bench.endpoint and bench.agent is None and not bench.model:
        raise UserError("--endpoint needs the name of a model there: --model NAME")
    for name in ("model", "endpoint") if bench.agent is not None else ():
        if getattr(bench, name):
            raise UserError(f"--{name} has no effect with --agent {bench.agent}, which needs no model: leave it out")
    in_process = bench.baseline is None and not bench.endpoint
    for name, default in _LOCAL.items() if not in_process else ():
        if getattr(bench, name) != default:
            raise UserError(f"--{name} has no effect without a model in this process: leave it out")
    if bench.kept is not None and not bench.endpoint:
        raise UserError("--kept has no effect without --endpoint: leave it out")
    most = SUITES[bench.suite].most_tasks
    if bench.tasks is not None and bench.tasks > most:
        raise UserError(f"--tasks {bench.tasks} has no effect: no entry of {bench.suite} has more than {most} tasks")
    if parts and parts["react"].oracle:
        raise UserError("--react.oracle has no effect on a row of a suite: leave it out")
