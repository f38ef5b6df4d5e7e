"""A model in this process: a run's trained policy, the tiny model, or any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import save

from agent_envs import registry
from agent_envs.core import Task
from agents.engine import SamplingSettings
from agents.tree.episode import Job
from runners.benching.fingerprints import FixedTasks
from runners.benching.results import TaskResult
from runners.benching.settings import Bench
from runners.command_line.blame import blamed
from runners.command_line.errors import UserError
from runners.command_line.plain import plain
from runners.evaluation.policies import Policies, load_policies
from runners.inference.evaluate_settings import Evaluate, elsewhere, run_of
from runners.run_folder.runs import BASE
from runners.settings.play_settings import PlaySettings
from runners.workers.controller import Controller


@dataclass(frozen=True)
class LocalPlayer:
    """Plays with one controller for all entries."""

    controller: Controller
    agent: Mapping[str, Any]
    settings: Mapping[str, Any]
    seed: int

    def play(self, fixed: FixedTasks, tasks: Sequence[Task], on_end: Callable[[], None]) -> list[TaskResult]:
        jobs = [Job(task, run_seed=self.seed, env=fixed.entry.name) for task in tasks]
        played = self.controller.play(jobs, SamplingSettings(greedy=True), on_end=on_end)
        if not played.episodes:
            raise UserError(f"no episode of {fixed.entry.name} was played to its end: {played.faults[-1]}")
        return [TaskResult.of(outcome) for outcome in played.outcomes]


@contextmanager
def local_player(
    bench: Bench, parts: Mapping[str, Any], suite: Sequence[FixedTasks], console: Console
) -> Iterator[LocalPlayer]:
    """The model of ``bench``, ready to play the entries. Raises UserError."""
    torch.set_num_threads(bench.threads)
    first = {fixed.entry.env: fixed.env.config for fixed in reversed(suite)}
    _say_where_it_was_trained(bench, first, parts, console)
    play = PlaySettings(first, parts["react"], parts["envs"], parts["faults"], bench.slots, exact=True)
    policies = load_policies(
        bench.model, play, console, device=bench.device, dtype=bench.dtype, chat=parts.get("chat"),
        pretrain=parts.get("pretrain"),
    )  # fmt: skip
    for fixed in suite:
        with blamed(fixed.env.name, "to prepare"):
            fixed.env.prepare()
        # Two entries may have the same environment with other settings, so jobs call it by the entry's name.
        policies.worker.add_env(fixed.entry.name, partial(registry.env_class(fixed.entry.env), fixed.env.config))
    with policies.playing() as controller:
        name = "trained" if "trained" in policies.adapters else "model"
        controller.load(0, policies.adapters[name])
        console.print(f"model: {controller.workers.start()}", soft_wrap=True, highlight=False)
        agent = {"kind": "model", "weights": weights(bench, policies, name), "dtype": policies.dtype}
        yield LocalPlayer(controller, agent, settings_of(parts), bench.seed)


def settings_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that change what a model does."""
    names = ("react", "chat")
    return {"decoding": "greedy", **{name: plain(parts[name]) for name in names if name in parts}}


def weights(bench: Bench, policies: Policies, name: str) -> str:
    """A name of the weights: that of the base model, with the adapter's where there is one."""
    if policies.base is not None:
        return policies.base.fingerprint
    run = run_of(Evaluate(model=bench.model))
    assert run is not None
    base = json.loads((run.folder / BASE).read_text("utf-8"))["fingerprint"]
    adapter = save({key: value.cpu().contiguous() for key, value in (policies.adapters[name] or {}).items()})
    return sha256(f"{base} {sha256(adapter).hexdigest()}".encode()).hexdigest()


def _say_where_it_was_trained(
    bench: Bench, configs: Mapping[str, Any], parts: Mapping[str, Any], console: Console
) -> None:
    evaluate = Evaluate(env=tuple(configs), model=bench.model)
    run = run_of(evaluate)
    for line in elsewhere(run, evaluate, {**parts, **configs}) if run else ():
        console.print(line, highlight=False, soft_wrap=True, markup=False)
