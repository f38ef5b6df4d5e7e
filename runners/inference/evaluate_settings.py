"""The settings of ``turnwise evaluate``, and what it takes over from a run. Imports no torch."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_envs import registry
from agent_envs.core import SPLITS
from agent_envs.isolation.host_process import HostSettings
from agent_envs.ranges import check_name, check_ranges
from agents.engine import SamplingSettings
from agents.rollout.search.settings import ScorerKind
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.text.settings import ChatSettings
from runners.cloning.settings import TINY, PretrainSettings
from runners.command_line.errors import UserError
from runners.command_line.parse import named
from runners.command_line.plain import plain
from runners.inference.settings import Agent, check_scorers
from runners.inference.settings import parts_of as inference_parts
from runners.run_folder.runs import SavedRun, read_run, run_folder
from runners.settings.play_settings import check_envs, with_list
from runners.settings.train_settings import DTYPES

NO_WALLS = "unsafe-process"
"""A sandbox that is none."""


@dataclass(frozen=True)
class Evaluate:
    """Measure an agent on held-out tasks."""

    env: tuple[str, ...] = ()
    """Environment to measure on, or several, one after the other; the settings of each are the flags --ENV.…. By
    default those of the run, with the run's settings, or the wiki."""
    model: str = TINY
    """A run folder (measured as base and as trained), `tiny`, or a Hugging Face folder or hub name."""
    split: str = "test"
    """Split of the tasks: train, valid or test."""
    tasks: int = 500
    """Tasks of each environment, spread evenly over the split."""
    agent: Agent = Agent.REACT
    """react, best-of-n, tot or early-stop; the last three use scorers and have settings of their own."""
    scorer: tuple[ScorerKind, ...] = ()
    """Scorers of best-of-n, tot and early-stop, all on the same tasks: value (the critic), end_value (the critic after
    the answer), logprob (the policy's own), value+logprob, end_value+logprob, random, majority, oracle. By default the
    most informative ones."""
    samples: int = 4
    """Sampled episodes per task, for pass@k of react (the greedy measurement plays one) and for early-stop."""
    temperature: float | None = None
    """Temperature of the sampled episodes; by default that of the run's training, or 1."""
    seed: int = 0
    """Seed of the sampling."""
    out: Path | None = None
    """File for the whole result as JSON."""
    slots: int = 128
    """Episodes played at once."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda, …"""
    dtype: str | None = None
    """Type of the weights: float32, bfloat16, float16 or auto (as saved); by default that of the run's training, or
    float32."""
    threads: int = 1
    """Threads of torch in this process."""
    endpoint: str = ""
    """Address of a served model to measure in place of one in this process, as http://127.0.0.1:8000/v1;
    `--endpoint URL --help` shows the flags for it."""

    def __post_init__(self) -> None:
        check_ranges(self, tasks=1, samples=(1, 10_000), slots=(1, 65_536), threads=(1, 1024), seed=(0, 2**63 - 1))
        if self.dtype is not None:
            check_name(self, "dtype", DTYPES)
        if self.temperature is not None:
            SamplingSettings(self.temperature)
        check_name(self, "split", SPLITS)
        if self.env:
            check_envs(self.env)
        check_scorers(self.agent, self.scorer)
        if self.endpoint:
            raise ValueError("endpoint must be named on the command line")
        if self.split == "valid" and "validation" in inference_parts(self.agent, self.scorer):
            raise ValueError("split must be test: what is chosen on validation tasks is measured on others")
        if self.samples != 4 and self.agent in (Agent.BEST_OF_N, Agent.TOT):
            raise ValueError(f"samples only works with react and early-stop, not with {self.agent}")

    @staticmethod
    def adopted(values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a settings file."""
        return with_list(values)


def parts_of(evaluate: Evaluate) -> dict[str, Any]:
    """Settings by prefix; those of a run's environment and turns are those of training, unless they are given."""
    run = run_of(evaluate)
    envs = envs_of(evaluate, run)
    parts: dict[str, Any] = {env: registry.env_class(env).Config for env in envs} | {"react": ReActSettings}
    parts |= {"envs": HostSettings, "faults": FaultSettings}
    if run is None:
        parts["chat"] = ChatSettings
    elif known := {env: run.settings.env[env] for env in envs if env in run.settings.env}:
        check_walls(run, known)
        parts |= known | {"react": replace(run.settings.react, oracle=False)}
    if evaluate.model == TINY:
        parts["pretrain"] = PretrainSettings
    return parts | inference_parts(evaluate.agent, evaluate.scorer)


def check_walls(run: SavedRun, envs: Mapping[str, Any]) -> None:
    """Raises UserError where a run's own settings, which may be anybody's, take the walls from around programs."""
    flags, given, _ = named(sys.argv[1:])
    for env, settings in envs.items():
        for name, value in plain(settings).items():
            if value == NO_WALLS and f"{env}.{name}" not in flags | given:
                raise UserError(
                    f"{run.folder} says {env}.{name} {NO_WALLS}: its model's programs would run without walls. If you "
                    f"want that, say --{env}.{name.replace('_', '-')} {NO_WALLS} yourself"
                )


def run_of(evaluate: Evaluate) -> SavedRun | None:
    """The training run that ``--model`` names, itself or by one of its checkpoints."""
    folder = run_folder(Path(evaluate.model))
    return None if folder is None else read_run(folder)


def envs_of(evaluate: Evaluate, run: SavedRun | None) -> tuple[str, ...]:
    """The environments that are named, or those of the run, or the wiki."""
    return evaluate.env or (run.train.env if run else ("wiki",))


def elsewhere(run: SavedRun, evaluate: Evaluate, parts: Mapping[str, Any]) -> list[str]:
    """What is said where a run is measured on another environment than it was trained on, or with other settings."""
    said = []
    for env in evaluate.env:
        if env not in run.settings.env:
            said.append(f"{run.folder} was trained on {' and '.join(run.train.env)}; it is measured on {env}")
            continue
        now, then = plain(parts[env]), plain(run.settings.env[env])
        if changed := [f"{name} {then[name]} -> {now[name]}" for name in now if now[name] != then[name]]:
            said.append(f"{run.folder} was trained with other settings of {env}: {', '.join(changed)}")
    return said


def sampling_of(evaluate: Evaluate, run: SavedRun | None) -> SamplingSettings:
    """How tokens are drawn: at the temperature that is named, or as in the run's training, or as the model has them."""
    trained = run.train.sampling() if run else SamplingSettings()
    return trained if evaluate.temperature is None else replace(trained, temperature=evaluate.temperature)
