"""Measures a run, the tiny model or any other on held-out tasks, as it plays or led by scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agent_envs import registry
from agent_envs.core import Task
from agents.engine import SamplingSettings
from runners.command_line.errors import UserError
from runners.command_line.outputs import check_file, writing
from runners.command_line.plain import dump_json, plain
from runners.evaluation import calibration_report
from runners.evaluation import report as evaluation_report
from runners.evaluation import thought_kinds as kinds
from runners.evaluation.calibration import calibration
from runners.evaluation.measure import PlayedTasks
from runners.evaluation.policies import load_policies
from runners.evaluation.tasks import has_oracle, pick_tasks
from runners.inference import report as inference_report
from runners.inference.evaluate_settings import Evaluate, elsewhere, envs_of, run_of, sampling_of
from runners.inference.program import Study, check
from runners.inference.program import measure as measure_by_scores
from runners.inference.settings import Agent, asks_oracle, scorers_of
from runners.run_folder.folder import write_whole
from runners.settings.play_settings import PlaySettings, job_env
from runners.statistics.turns import Passed, turns_of


def measure(study: Study, tasks: Sequence[Task]) -> dict[str, dict[str, PlayedTasks]]:
    """{policy: {"sampled": …, "greedy": …}} on the same tasks."""
    greedy = replace(study, sampling=replace(study.sampling, greedy=True))
    result: dict[str, dict[str, PlayedTasks]] = {}
    for version, (name, adapter) in enumerate(study.policies.adapters.items()):
        study.controller.load(version, adapter)
        result[name] = {"sampled": study.play(tasks, study.samples), "greedy": greedy.play(tasks, 1)}
    return result


def looked_into(found: Mapping[str, Mapping[str, PlayedTasks]], study: Study) -> dict[str, Any]:
    """What else the last policy's sampled episodes tell: of the critic where there is one, of the kinds of thoughts."""
    episodes = [e for e in found[list(found)[-1]]["sampled"].episodes if e.turns]
    values = None if study.policies.critic is None else study.policies.critic.values(episodes)
    extra: dict[str, Any] = {}
    if values is not None and (known := calibration(turns_of(map(Passed.of, episodes, values)))):
        extra["calibration"] = known
    if (kind := study.env.turn_kind()) is not None:
        extra["kinds"] = kinds.by_kind(episodes, values, kind)
    return extra


def by_scores(evaluate: Evaluate, study: Study, tasks: Sequence[Task]) -> dict[str, Any]:
    """Measures an agent that goes by scores, shows it, and writes its files. Raises UserError."""
    adapters = study.policies.adapters
    study.controller.load(0, adapters["trained" if "trained" in adapters else "model"])
    result = measure_by_scores(study, evaluate.split, tasks)
    inference_report.show(result, study.console)
    if evaluate.out:
        title = f"{study.env.name}, {evaluate.agent}, {len(tasks)} {evaluate.split} tasks"
        inference_report.write(result, title, file_of(evaluate, study))
    return inference_report.as_json(result)


def by_playing(evaluate: Evaluate, study: Study, tasks: Sequence[Task]) -> dict[str, Any]:
    """Measures the policies as they are, and the critic. Raises UserError."""
    result = measure(study, tasks)
    figures = evaluation_report.figures_of(result)
    evaluation_report.show(figures, study.console)
    extra = looked_into(result, study)
    if "calibration" in extra:
        calibration_report.show(extra["calibration"], study.console)
        if evaluate.out:
            file = file_of(evaluate, study)
            picture = file.with_name(f"{file.stem}-calibration.png")
            calibration_report.draw(extra["calibration"], f"{study.env.name}: {Path(evaluate.model).name}", picture)
    if "kinds" in extra:
        kinds.show(extra["kinds"], study.console)
    return figures | extra


def run(evaluate: Evaluate, parts: dict[str, Any]) -> None:
    """The whole program. Raises UserError."""
    run = run_of(evaluate)
    sampling = sampling_of(evaluate, run)
    sampled = {"top_p": sampling.top_p, "top_k": sampling.top_k}
    evaluate = replace(evaluate, env=envs_of(evaluate, run), temperature=sampling.temperature)
    if evaluate.out:
        check_outputs(evaluate)
    torch.set_num_threads(evaluate.threads)
    console = Console()
    for line in elsewhere(run, evaluate, parts) if run else ():
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    configs = {name: parts[name] for name in evaluate.env}
    envs = registry.make_all(configs)
    tasks = {name: pick_tasks(env, evaluate.split, evaluate.tasks, console) for name, env in envs.items()}
    if parts["react"].oracle and (blind := [n for n, env in envs.items() if not has_oracle(env, evaluate.split)]):
        raise UserError(f"--react.oracle needs an oracle, and the environment {blind[0]} has none")
    oracle = parts["react"].oracle or asks_oracle(evaluate.agent, evaluate.scorer)
    parts["react"] = replace(parts["react"], oracle=oracle)
    play = PlaySettings(configs, parts["react"], parts["envs"], parts["faults"], evaluate.slots, exact=True)
    policies = load_policies(
        evaluate.model, play, console, device=evaluate.device, dtype=evaluate.dtype, chat=parts.get("chat"),
        pretrain=parts.get("pretrain"),
    )  # fmt: skip
    evaluate = replace(evaluate, dtype=policies.dtype)
    figures: dict[str, Any] = {}
    with policies.playing() as controller:
        console.print(f"model: {controller.workers.start()}", soft_wrap=True, highlight=False)
        truncated = [f", {name} {value:g}" for name, value in sampled.items() if value != getattr(_ALL, name)]
        told = f"temperature of the sampled episodes: {sampling.temperature:g}{''.join(truncated)}"
        console.print(told, highlight=False)
        studies = {
            name: Study(
                evaluate.agent, scorers_of(evaluate.agent, evaluate.scorer), parts, sampling, evaluate.samples,
                evaluate.seed, controller, policies, env, console, job_env(name, evaluate.env),
            )
            for name, env in envs.items()
        }  # fmt: skip
        for study in studies.values():
            if evaluate.agent != Agent.REACT:
                check(study, evaluate.split)
        for name, study in studies.items():
            if study.job_env:
                console.print(f"[bold]{name}[/]", highlight=False)
            figures[name] = (by_playing if evaluate.agent == Agent.REACT else by_scores)(evaluate, study, tasks[name])
    if evaluate.out:
        with writing(evaluate.out):
            write_whole(evaluate.out, dump_json(written(evaluate, sampled, parts, figures)))


_ALL = SamplingSettings()
"""Nothing is truncated."""


def check_outputs(evaluate: Evaluate) -> None:
    """Raises UserError where --out cannot be written, or other files would be lost beside it."""
    out = evaluate.out
    assert out is not None
    check_file(out)
    if evaluate.agent == Agent.REACT:
        return
    if out.suffix != ".json":
        raise UserError(f"--out {out}: name a file that ends in .json; tables and pictures are written beside it")
    beside = [path for path in (out.with_suffix(end) for end in (".md", ".csv", ".png")) if path.exists()]
    if beside and not out.exists():
        raise UserError(f"--out {out} would overwrite {beside[0]}: name another file")


def written(
    evaluate: Evaluate, sampled: Mapping[str, Any], parts: Mapping[str, Any], figures: Mapping[str, Any]
) -> dict[str, Any]:
    """What --out holds: the settings and the figures; with several environments, those of each under its name."""
    asked = plain(evaluate) | dict(sampled)
    if len(figures) > 1:
        return {"settings": {"evaluate": asked, **parts}, "envs": figures}
    return {"settings": {"evaluate": asked | {"env": evaluate.env[0]}, **parts}, **next(iter(figures.values()))}


def file_of(evaluate: Evaluate, study: Study) -> Path:
    """The file beside which an environment's tables and pictures are written; with several it bears their name."""
    assert evaluate.out is not None
    return evaluate.out.with_stem(f"{evaluate.out.stem}-{study.job_env}") if study.job_env else evaluate.out
