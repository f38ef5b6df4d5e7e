"""Measures agents on held-out tasks.

    turnwise evaluate --env wiki --model runs/wiki-selfac-0-…

    turnwise evaluate --env corridor --model RUN --agent best-of-n --scorer value logprob random

A run folder is measured twice, as the base model and as trained, on the same tasks. Reported are success, unbiased
pass@k, turns and tokens with bootstrap intervals over tasks, also by number of hops and language; and, where the run
has a critic, how well its values predict success (`calibration`). Agents that use scores play the trained policy
(`inference`).
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console

from agent_envs import registry
from agent_envs.core import Task, TextEnv
from agent_envs.isolation.settings import HostSettings
from agent_envs.ranges import check_ranges
from agents.engine import SamplingSettings
from agents.rollout.search.settings import ScorerKind
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.text.settings import ChatSettings
from runners.cloning.settings import TINY, PretrainSettings
from runners.command_line.errors import UserError, run_program
from runners.command_line.parse import parse
from runners.command_line.plain import dump_json
from runners.evaluation import calibration_report
from runners.evaluation import report as evaluation_report
from runners.evaluation import thought_kinds as kinds
from runners.evaluation.calibration import calibration, states_of
from runners.evaluation.measure import PlayedTasks, evaluate_tasks, has_oracle, pick_tasks
from runners.evaluation.policies import Policies, load_policies
from runners.inference import report as inference_report
from runners.inference.program import Study, check, scored_player
from runners.inference.program import measure as measure_by_scores
from runners.inference.settings import Agent, asks_oracle, check_scorers, scorers_of
from runners.inference.settings import parts_of as inference_parts
from runners.run_folder.runs import SavedRun, read_run, run_folder
from runners.settings.play_settings import PlaySettings
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers


@dataclass(frozen=True)
class Evaluate:
    """Measure an agent on held-out tasks."""

    env: str = ""
    """Environment to measure on; its settings are the flags --ENV.…. By default the run's, with the run's settings, or
    the wiki."""
    model: str = TINY
    """A run folder (measured as base and as trained), `tiny`, or a Hugging Face folder or hub name."""
    split: str = "test"
    """Split of the tasks: valid or test."""
    tasks: int = 500
    """Tasks, spread evenly over the split."""
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
    dtype: str = "float32"
    """Type of the weights: float32, bfloat16 or auto (as saved)."""
    threads: int = 1
    """Threads of torch in this process."""

    def __post_init__(self) -> None:
        check_ranges(self, tasks=1, samples=1, slots=1, threads=1)
        if self.temperature is not None:
            SamplingSettings(self.temperature)
        check_scorers(self.agent, self.scorer)
        if self.samples != 4 and self.agent in (Agent.BEST_OF_N, Agent.TOT):
            raise ValueError(f"samples only works with react and early-stop, not with {self.agent}")


def parts_of(evaluate: Evaluate) -> dict[str, Any]:
    """Settings by prefix; those of a run's environment and turns are what they were in training, unless told."""
    run = run_of(evaluate)
    env = env_of(evaluate, run)
    parts: dict[str, Any] = {env: registry.env_class(env).Config, "react": ReActSettings}
    parts |= {"envs": HostSettings, "faults": FaultSettings}
    if run is None:
        parts["chat"] = ChatSettings
    elif run.train.env == env:
        parts |= {env: run.settings.env, "react": replace(run.settings.react, oracle=False)}
    if evaluate.model == TINY:
        parts["pretrain"] = PretrainSettings
    return parts | inference_parts(evaluate.agent, evaluate.scorer)


def run_of(evaluate: Evaluate) -> SavedRun | None:
    """The training run that ``--model`` names, itself or by one of its checkpoints."""
    folder = run_folder(Path(evaluate.model))
    return None if folder is None else read_run(folder)


def env_of(evaluate: Evaluate, run: SavedRun | None) -> str:
    """The environment that is named, or that of the run, or the wiki."""
    return evaluate.env or (run.train.env if run else "wiki")


def sampling_of(evaluate: Evaluate, run: SavedRun | None) -> SamplingSettings:
    """How tokens are drawn: at the temperature that is named, or as in the run's training, or as the model has them."""
    if evaluate.temperature is not None:
        return SamplingSettings(evaluate.temperature)
    return run.train.sampling() if run else SamplingSettings()


def measure(
    evaluate: Evaluate, sampling: SamplingSettings, controller: Controller, policies: Policies, tasks: Sequence[Task],
    console: Console,
) -> dict[str, dict[str, PlayedTasks]]:  # fmt: skip
    """{policy: {"sampled": …, "greedy": …}} on the same tasks."""
    result: dict[str, dict[str, PlayedTasks]] = {}
    for version, (name, adapter) in enumerate(policies.adapters.items()):
        controller.load(version, adapter)
        result[name] = {}
        for mode, greedy, samples in (("sampled", False, evaluate.samples), ("greedy", True, 1)):
            drawn = replace(sampling, greedy=greedy)
            result[name][mode] = evaluate_tasks(controller, drawn, tasks, console, seed=evaluate.seed, samples=samples)
    return result


def looked_into(found: Mapping[str, Mapping[str, PlayedTasks]], policies: Policies, env: TextEnv) -> dict[str, Any]:
    """What else the last policy's sampled episodes tell: of the critic where there is one, of the kinds of thoughts."""
    last = list(found)[-1]
    episodes = [e for e in found[last]["sampled"].episodes if e.turns]
    values = None if policies.critic is None else policies.critic.values(episodes)
    extra: dict[str, Any] = {}
    if values is not None and (known := calibration(states_of(episodes, values))):
        extra["calibration"] = known
    if (kind := env.turn_kind()) is not None:
        extra["kinds"] = kinds.by_kind(episodes, values, kind)
    return extra


def by_scores(
    evaluate: Evaluate, parts: Mapping[str, Any], sampling: SamplingSettings, controller: Controller,
    policies: Policies, env: TextEnv, tasks: Sequence[Task], console: Console,
) -> dict[str, Any]:  # fmt: skip
    """Measures an agent that goes by scores, shows it, and writes its files. Raises UserError."""
    scorers = scorers_of(evaluate.agent, evaluate.scorer)
    study = Study(evaluate.agent, scorers, parts, sampling, evaluate.samples, evaluate.seed, evaluate.slots)
    player = scored_player(controller, policies, env, console)
    check(study, player, evaluate.split)
    controller.load(0, policies.adapters["trained" if "trained" in policies.adapters else "model"])
    result = measure_by_scores(study, player, evaluate.split, tasks)
    inference_report.show(result, console)
    if evaluate.out:
        title = f"{evaluate.env}, {evaluate.agent}, {len(tasks)} {evaluate.split} tasks"
        inference_report.write(result, title, evaluate.out)
    return inference_report.as_json(result)


def by_playing(
    evaluate: Evaluate, sampling: SamplingSettings, controller: Controller, policies: Policies, env: TextEnv,
    tasks: Sequence[Task], console: Console,
) -> dict[str, Any]:  # fmt: skip
    """Measures the policies as they are, and the critic. Raises UserError."""
    result = measure(evaluate, sampling, controller, policies, tasks, console)
    figures = evaluation_report.figures_of(result)
    evaluation_report.show(figures, console)
    extra = looked_into(result, policies, env)
    if "calibration" in extra:
        calibration_report.show(extra["calibration"], console)
        if evaluate.out:
            picture = evaluate.out.with_name(f"{evaluate.out.stem}-calibration.png")
            calibration_report.draw(extra["calibration"], f"{evaluate.env}: {Path(evaluate.model).name}", picture)
    if "kinds" in extra:
        kinds.show(extra["kinds"], console)
    return figures | extra


def main() -> None:
    evaluate, parts = parse(Evaluate, parts_of, about=Evaluate.__doc__ or "")
    run = run_of(evaluate)
    sampling = sampling_of(evaluate, run)
    evaluate = replace(evaluate, env=env_of(evaluate, run), temperature=sampling.temperature)
    torch.set_num_threads(evaluate.threads)
    console = Console()
    env = registry.make(evaluate.env, parts[evaluate.env])
    tasks = pick_tasks(env, evaluate.split, evaluate.tasks)
    if parts["react"].oracle and not has_oracle(env, evaluate.split):
        raise UserError(f"--react.oracle needs an oracle, and the environment {evaluate.env} has none")
    oracle = parts["react"].oracle or asks_oracle(evaluate.agent, evaluate.scorer)
    parts["react"] = replace(parts["react"], oracle=oracle)
    play = PlaySettings(
        evaluate.env, parts[evaluate.env], parts["react"], parts["envs"], parts["faults"], evaluate.slots, exact=True
    )
    policies = load_policies(
        evaluate.model, play, console, device=evaluate.device, dtype=evaluate.dtype, chat=parts.get("chat"),
        pretrain=parts.get("pretrain"),
    )  # fmt: skip
    workers = LocalWorkers(lambda: policies.worker)
    console.print(f"model: {workers.start()}", soft_wrap=True, highlight=False)
    console.print(f"temperature of the sampled episodes: {sampling.temperature:g}", highlight=False)
    try:
        controller = Controller(workers, evaluate.slots, parts["faults"])
        if evaluate.agent == Agent.REACT:
            figures = by_playing(evaluate, sampling, controller, policies, env, tasks, console)
        else:
            figures = by_scores(evaluate, parts, sampling, controller, policies, env, tasks, console)
    finally:
        workers.close()
    if evaluate.out:
        try:
            evaluate.out.write_text(dump_json({"settings": {"evaluate": evaluate, **parts}, **figures}), "utf-8")
        except OSError as error:
            raise UserError(f"cannot write {evaluate.out}: {error.strerror}") from None


if __name__ == "__main__":
    run_program(main)
