"""The same jobs on the default engine in this process and on vLLM in a worker's, and what the trainer says of them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from agents.engine.base import uniforms
from agents.engine.registry import EngineChoice
from agents.engine.vllm.settings import VLLMSettings
from agents.model.settings import CriticSettings
from agents.rollout.forking.settings import ForkPlan
from agents.tree import Kind, Node
from agents.tree.episode import Job
from agents.tree.merge import grow
from agents.tree.packing import pack
from algorithms.formulas.mismatch import mismatch_stats
from runners.evaluation.tasks import pick_tasks
from runners.loading.base_model import actor_of, load_base
from runners.run_folder.runs import base_of
from runners.settings.run_settings import RunSettings, read_settings
from runners.training.searching import search_of
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers
from runners.workers.process import ProcessWorkers
from runners.workers.serve import WorkerSetup

EPISODES = int(os.environ.get("TURNWISE_VLLM_EPISODES", "48"))
"""Of each environment; 256 takes about an hour on two cores."""
SMALL = ("--react.max-action-tokens", "24", "--react.max-tokens", "600", "--slots", "64", "--envs.processes", "1")
SMALL += ("--pretrain.demonstrations", "300", "--pretrain.steps", "200")


@dataclass
class Both:
    """One worker of each engine, and the trainer's model."""

    run: RunSettings
    controllers: dict[str, Controller]
    model: Any
    prompt: tuple[int, ...] | None

    @classmethod
    def open(cls, *argv: str, **vllm: Any) -> Both:
        run = read_settings([*SMALL, *argv])
        spec = base_of(run, Console(quiet=True), "cpu")
        search = search_of(run)
        critic = run.critic if search and isinstance(run.critic, CriticSettings) else None
        setup = WorkerSetup(spec, run.lora, run.play(), critic=critic)
        there = replace(setup, play=replace(setup.play, engine=EngineChoice("vllm", VLLMSettings(**vllm))))
        workers = {"hf": LocalWorkers(setup.make), "vllm": ProcessWorkers(there, 1)}
        assert "vLLM" in workers["vllm"].start()
        model, prompt = actor_of(load_base(spec), run)
        return cls(run, {k: Controller(w, run.train.slots, run.faults) for k, w in workers.items()}, model, prompt)

    def close(self) -> None:
        for controller in self.controllers.values():
            controller.close()

    def perturb(self, seed: int, by: float = 0.05) -> None:
        """Another policy in the trainer."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in (*self.model.policy_parameters(), *self.model.value_parameters()):
                parameter += by * torch.randn(parameter.shape, generator=generator)

    def load(self, version: int) -> None:
        """The trainer's policy into both engines."""
        for controller in self.controllers.values():
            controller.load(version, self.model.adapter_state() if search_of(self.run) else self.model.policy_state())

    def play(self, episodes: int, engine: str, group: int = 1, **sampling: Any) -> list[Any]:
        tasks = pick_tasks(self.env, "train", max(1, episodes // group))
        jobs = [Job(tasks[i % len(tasks)], i // len(tasks), 5) for i in range(episodes)]
        drawn = replace(self.run.train.sampling(), **sampling)
        wanted = self.run.algorithm.sampling
        plan = None if wanted.initial is None else ForkPlan(wanted, self.run.algorithm.branch)
        if plan is not None:
            jobs = [Job(task, sample, 5) for task in tasks for sample in range(wanted.group)]
        played = self.controllers[engine].play(jobs, drawn, plan=plan, search=search_of(self.run))
        assert played.faults == []
        return played.episodes

    @property
    def env(self) -> Any:
        from agent_envs import registry

        return registry.make(*self.run.only_env("this test"))

    def mismatch(self, episodes: list[Any]) -> dict[str, float]:
        """Trainer against engine, over trees with critic prompts."""
        most, total, tokens = 0.0, 0.0, 0
        for tree in grow(episodes):
            batch = pack([tree.root], self.prompt)
            with torch.no_grad():
                logp_T: Tensor = self.model(batch).logp_T
            stats, count = mismatch_stats(batch, logp_T, batch.old_logp_T), int((batch.action_T >= 0).sum())
            most, tokens = max(most, stats["mismatch_max_abs"]), tokens + count
            total += count * stats["mismatch_mean_abs"]
        return {"mismatch_max_abs": most, "mismatch_mean_abs": total / tokens}

    def border(self, one: Any, other: Any) -> float:
        """How far the uniform number lies from the border between the two tokens in which the episodes first differ."""
        path = list(one.root.tokens)
        for number, ((mine, seen), (their, _)) in enumerate(zip(one.turns, other.turns, strict=False)):
            if mine.tokens == their.tokens:
                path += mine.tokens + seen.tokens
                continue
            k = next(k for k, (x, y) in enumerate(zip(mine.tokens, their.tokens, strict=False)) if x != y)
            batch = pack([Node(Kind.STATE, (*path, *mine.tokens[:k]))])
            with torch.no_grad():
                p_V = (self.model.logits(self.model.hidden(batch)[-1:])[0] / self.model.temperature).softmax(-1)
            u = uniforms(one.job.seed(number), k + 1)[k]
            cdf_V = p_V.double().cumsum(0) / p_V.double().sum()
            return abs(float(cdf_V[min(mine.tokens[k], their.tokens[k])]) - float(u))
        return float("inf")


def spoken(episode: Any) -> list[tuple[int, ...]]:
    return [action.tokens for action, _ in episode.turns]


def compare(mine: list[Any], other: list[Any]) -> tuple[int, int, float]:
    """(episodes that are the same token for token, sampled tokens of the first, largest difference of a log-prob
    among those that are the same)."""
    assert [e.job.id for e in mine] == [e.job.id for e in other]
    pairs = [(a, b) for a, b in zip(mine, other, strict=True) if spoken(a) == spoken(b) and a.texts == b.texts]
    off = [abs(x - y) for a, b in pairs for s, t in zip(a.turns, b.turns, strict=True)
           for x, y in zip(s[0].logp, t[0].logp, strict=True)]  # fmt: skip
    return len(pairs), sum(len(tokens) for e in mine for tokens in spoken(e)), max(off)
