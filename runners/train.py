"""Trains an agent: play episodes, turn them into trees, descend the algorithm's loss, and again.

    python runners/train.py --env wiki --algo selfac

Read ``Training.run`` for the loop. Everything a run records lies in its folder: the resolved settings, versions,
``metrics.jsonl``, ``episodes.jsonl``, TensorBoard files, ``curve.png``, ``summary.json`` and the checkpoints.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from agent_envs import registry
from agent_envs.core import Task, TextEnv
from agents.actor_critic import ActorCritic, CriticSettings
from agents.backward import backward, forward_parts
from agents.chat import Chat
from agents.engine import SamplingSettings
from agents.engine.hf import HFEngine
from agents.packing import pack
from agents.react import Episode, Job, ReActSettings
from agents.rollout import Clock, rollout, trees
from agents.tree import Batch, Forward, Node
from algorithms.base import Algorithm, Loss
from runners.config import UserError, dump, dump_json, parse, run_program
from runners.measure import evaluate_tasks, pick_tasks
from runners.models import device_of, load_base, source_of
from runners.report import Report, draw_curve, open_run_folder, versions
from runners.settings import Train, parts_of


class Training:
    """One run: what it is made of, and its loop."""

    def __init__(self, train: Train, parts: Mapping[str, Any], folder: Path, console: Console) -> None:
        self.train, self.parts, self.folder, self.console = train, parts, folder, console
        self.began = time.monotonic()
        self.algorithm: Algorithm[Any] = parts[train.algo]
        self.react: ReActSettings = parts["react"]
        group = self.algorithm.sampling.group
        if train.episodes % group or train.episodes // group < train.minibatches:
            raise UserError(
                f"--episodes {train.episodes} must be a multiple of the group of {group}, with at least one task for "
                f"each of the {train.minibatches} minibatches"
            )
        self.tasks_per_update, self.group = train.episodes // group, group
        device = device_of(train.device)
        env = self.make_env()
        base = load_base(source_of(train.model, env, parts, console), device, train.dtype, parts["chat"])
        self.chat: Chat = base.chat
        (folder / "base.json").write_text(dump_json({"source": base.source, "fingerprint": base.fingerprint}), "utf-8")
        critic: CriticSettings | None = parts.get("critic")
        self.model = ActorCritic(base.model, parts["lora"], critic, temperature=train.temperature, seed=train.seed)
        self.critic_prompt = self.chat.critic_prompt(critic.prompt) if critic else ()
        self.engine = HFEngine(
            self.model.model, self.chat.stop_ids, max_length=self.react.max_tokens, slots=train.slots, device=device
        )
        console.print(f"model: {self.engine.describe()}", soft_wrap=True, highlight=False)
        console.print(self.model.summary(), soft_wrap=True, highlight=False)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": self.model.policy_parameters(), "lr": train.lr, "peak": train.lr},
                {"params": self.model.value_parameters(), "lr": train.value_lr, "peak": train.value_lr},
            ][: 2 if critic else 1],
            betas=(0.9, 0.95),
            weight_decay=0.0,
        )
        self.stream = task_stream(env, train.seed)
        self.skipped = 0
        self.warned = False

    def make_env(self) -> TextEnv:
        return registry.make(self.train.env, self.parts[self.train.env])

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        train = self.train
        with Report(self.folder, train.updates, self.console) as report:
            summary: dict[str, Any] = {"start": self.evaluate(report, 0, "test", train.test_tasks)}
            for update in range(1, train.updates + 1):
                episodes, row = self.play(update)
                row |= self.learn(update, trees(episodes))
                self.warn(row)
                report.episodes(update, episodes)
                report.update(update, row | {"seconds": self.seconds})
                if train.eval_every and update % train.eval_every == 0 and update < train.updates:
                    self.evaluate(report, update, "valid", train.eval_tasks)
                    self.model.save(self.folder / "checkpoints" / f"update-{update}")
            self.model.save(self.folder / "checkpoints" / f"update-{train.updates}")
            summary["final"] = self.evaluate(report, train.updates, "test", train.test_tasks)
        summary["seconds"] = round(self.seconds, 1)
        (self.folder / "summary.json").write_text(dump_json(summary), "utf-8")
        draw_curve(self.folder, f"{train.env}, {train.algo}, seed {train.seed}")
        return summary

    def play(self, update: int) -> tuple[list[Episode], dict[str, float]]:
        """Samples this update's episodes with the current policy."""
        self.engine.load(update - 1, self.model.policy_state())
        self.engine.sampling = SamplingSettings(temperature=self.train.temperature)
        jobs = []
        for _ in range(self.tasks_per_update):
            task, visit = next(self.stream)
            jobs += [Job(task, visit * self.group + g, self.train.seed) for g in range(self.group)]
        clock = Clock()
        started = time.monotonic()
        episodes = rollout(self.make_env, self.engine, self.chat, jobs, self.react, clock=clock)
        seconds = time.monotonic() - started
        if not any(episode.turns for episode in episodes):
            raise UserError(f"no task fits --react.max-tokens {self.react.max_tokens}: raise it")
        return episodes, episode_stats(episodes, self.group) | {
            "sampled_tokens_per_s": sum(e.sampled_tokens for e in episodes) / seconds,
            "seconds_rollout": seconds,
            "seconds_env": clock.env,
        }

    def learn(self, update: int, roots: Sequence[Node]) -> dict[str, float]:
        """One update of the parameters from this update's trees."""
        train, started = self.train, time.monotonic()
        size = -(-len(roots) // train.minibatches)
        pieces = [roots[i : i + size] for i in range(0, len(roots), size)]
        batches = [pack(piece, self.critic_prompt, self.model.device) for piece in pieces]
        prepared = [self.prepare(batch, measure=i == 0) for i, batch in enumerate(batches)]
        forwarded = time.monotonic()
        share = max(0.1, 1 - (update - 1) / train.updates)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * share
        stats: list[dict[str, float]] = []
        for _ in range(train.epochs):
            for batch, _, credit in prepared:
                loss = backward(self.model, batch, self.loss_of(batch, credit), train.token_budget)
                stats.append(loss.stats | self.step())
        row = {key: _mean([s[key] for s in stats if key in s]) for key in dict.fromkeys(k for s in stats for k in s)}
        raw = sum(batch.raw_tokens for batch in batches)
        return row | {
            "mismatch": max(mismatch for _, mismatch, _ in prepared),
            "packed_share": sum(len(batch) for batch in batches) / max(1, raw),
            "seconds_forward": forwarded - started,
            "seconds_update": time.monotonic() - forwarded,
            "skipped_steps": float(self.skipped),
        }

    def warn(self, row: Mapping[str, float]) -> None:
        """Says once when the steps are so large that most of what they teach is clipped away."""
        if row.get("clip_fraction", 0.0) > 0.4 and not self.warned:
            self.warned = True
            self.console.print(
                f"[bold]more than 40 % of the ratios were clipped:[/] lower --lr, or set --{self.train.algo}.ratio to "
                "one that grows less with the length of a turn (token, or a mean)",
                soft_wrap=True,
            )

    def prepare(self, batch: Batch, *, measure: bool) -> tuple[Batch, float, Any]:
        """The batch with the trainer's own log-probabilities, how far the engine's were off, and the credit."""
        old = forward_parts(self.model, batch, self.train.token_budget)
        mismatch = float((old.logp_T - batch.old_logp_T).abs().max()) if len(batch) else 0.0
        batch = replace(batch, old_logp_T=old.logp_T)
        # The divergence from the start is shown in any case; measuring it on one minibatch is enough for that.
        if self.algorithm.needs_reference or measure:
            batch = replace(batch, ref_logp_T=self.reference(batch))
        return batch, mismatch, self.algorithm.credit(batch, old)

    def reference(self, batch: Batch) -> Tensor:
        def off(part: Batch) -> Forward:
            logp_T = self.model.reference(part)
            return Forward(logp_T, torch.zeros_like(logp_T))

        return forward_parts(off, batch, self.train.token_budget).logp_T

    def loss_of(self, batch: Batch, credit: Any) -> Callable[[Forward], Loss]:
        return lambda new: self.algorithm.loss(batch, new, credit)

    def step(self) -> dict[str, float]:
        """One optimiser step; gradients that are no numbers are thrown away and counted."""
        norm = nn.utils.clip_grad_norm_(
            [p for g in self.optimizer.param_groups for p in g["params"]], self.train.max_grad_norm
        )
        if torch.isfinite(norm):
            self.optimizer.step()
        else:
            self.skipped += 1
        self.optimizer.zero_grad()
        return {"grad_norm": float(norm)}

    def evaluate(self, report: Report, update: int, split: str, n: int) -> dict[str, dict[str, float]]:
        """Success on fixed tasks of a split, sampled and greedy."""
        if not n:
            return {}
        self.engine.load(update, self.model.policy_state())
        found = {}
        tasks = pick_tasks(self.make_env(), split, n)
        for mode, greedy in (("sampled", False), ("greedy", True)):
            self.engine.sampling = SamplingSettings(temperature=self.train.temperature, greedy=greedy)
            result = evaluate_tasks(
                self.make_env, self.engine, self.chat, tasks, self.react, self.console, seed=self.train.seed
            )
            found[mode] = result.success()
            report.evaluation(update, split, mode, found[mode], self.seconds)
        return found


def task_stream(env: TextEnv, seed: int) -> Iterator[tuple[Task, int]]:
    """Training tasks in a seeded order without end, each with the number of earlier visits."""
    tasks = env.tasks("train")
    visit = 0
    while True:
        for i in np.random.default_rng([seed, visit]).permutation(len(tasks)):
            yield tasks[int(i)], visit
        visit += 1


def episode_stats(episodes: Sequence[Episode], group: int) -> dict[str, float]:
    """The averages that the live table shows."""
    actions = max(1, sum(len(e.turns) for e in episodes))
    stats = {
        "success": _mean([float(e.success or 0) for e in episodes]),
        "reward": _mean([e.reward for e in episodes]),
        "turns": _mean([float(len(e.turns)) for e in episodes]),
        "invalid": sum(e.invalid for e in episodes) / actions,
        "tool_errors": sum(e.errors for e in episodes) / actions,
        "truncated": _mean([float(e.end.truncated) for e in episodes]),
        "entropy": _mean([x for e in episodes for action, _ in e.turns for x in action.entropy]),
    }
    if group > 1:
        rewards = np.array([e.reward for e in episodes]).reshape(-1, group)
        stats["zero_variance"] = float((np.ptp(rewards, axis=1) <= 1e-8).mean())
    return stats


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def main() -> None:
    train, parts = parse(Train, parts_of, about=Train.__doc__ or "")
    torch.set_num_threads(train.threads)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = open_run_folder(train.out or Path("runs") / f"{train.env}-{train.algo}-{train.seed}-{stamp}")
    console = Console()
    console.print(f"run folder: {folder}", soft_wrap=True, highlight=False)
    training = Training(train, parts, folder, console)
    (folder / "config.yaml").write_text(dump(train, parts), "utf-8")
    (folder / "versions.json").write_text(dump_json(versions()), "utf-8")
    summary = training.run()
    print(dump_json(summary, indent=None).strip())


if __name__ == "__main__":
    run_program(main)
