"""A training run: its parts, its loop, and the state from which it resumes.

Read ``Training.run`` first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor

from agent_envs import registry
from agent_envs.core import TextEnv
from agents.judge import JudgeKind
from agents.model.settings import CriticSettings
from agents.model.state_values import Critic
from agents.rollout.forking.settings import ForkPlan
from agents.rollout.play import Played
from agents.tree.episode import Job
from agents.tree.merge import Tree, grow
from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json
from runners.evaluation.measure import evaluate_tasks, has_oracle, pick_tasks
from runners.loading.actor import actor_of
from runners.loading.base_model import device_of, load_base
from runners.run_folder import checkpoint
from runners.run_folder.folder import hold, write_whole
from runners.run_folder.runs import base_of, read_run
from runners.settings.run_settings import RunSettings
from runners.training.advice import Advisor
from runners.training.budget import Budget
from runners.training.curve import draw_curve
from runners.training.generators import load_rng_state, rng_state
from runners.training.group_costs import group_costs
from runners.training.interrupts import Interrupts, Stopped
from runners.training.judging import Judging, judge_settings, judged, local_judge, remote_judge
from runners.training.learner import Learned, Learner, check_critic_steps
from runners.training.ledger import Ledger
from runners.training.records import episode_stats
from runners.training.report import Report
from runners.training.searching import search_costs, search_of
from runners.training.stream import TaskStream
from runners.workers.controller import Controller
from runners.workers.registry import WORKERS, WorkersOpening
from runners.workers.serve import WorkerSetup
from runners.workers.worker import Worker

STATE, OPTIMIZER, RNG = "state.json", "optimizer.safetensors", "rng.safetensors"


class Training:
    """One run: its parts and its loop. ``resume`` is the checkpoint to resume from.

    Invariant: between two updates everything that later episodes and updates depend on is in the parameters and in
    ``state``; a run that goes on from there computes the same bits. Use as a context manager.
    """

    def __init__(self, settings: RunSettings, folder: Path, console: Console, resume: Path | None = None) -> None:
        self.settings, self.train, self.folder, self.console = settings, settings.train, folder, console
        self.began = time.monotonic()
        self.interrupts = Interrupts()
        self.opened = ExitStack()
        """Closes everything that was opened, last first."""
        try:
            self._begin(resume)
        except BaseException:
            self.opened.close()
            raise

    def _begin(self, resume: Path | None) -> None:
        settings, train, folder, console = self.settings, self.train, self.folder, self.console
        self.opened.callback(hold(folder).close)
        self.algorithm = settings.algorithm
        judge_of = judge_settings(settings)
        asks_oracle = {
            f"--algo {train.algo}": self.algorithm.needs.oracle,
            "--judge.kind oracle": judge_of is not None and judge_of.kind == JudgeKind.ORACLE,
            "--react.oracle": settings.react.oracle,
        }
        react = replace(settings.react, oracle=any(asks_oracle.values()))
        sampling = self.algorithm.sampling
        self.group = sampling.group
        self.plan = None if sampling.initial is None else ForkPlan(sampling, self.algorithm.branch)
        self.search = search_of(settings)
        if self.plan and self.group > train.slots:
            raise UserError(
                f"--slots {train.slots} must hold the {self.group} episodes of a task, which fork: raise it"
            )
        if not train.divides_into(self.group):
            raise UserError(
                f"--episodes {train.episodes} must be a multiple of the group of {self.group}, with at least one task "
                f"for each of the {train.minibatches} minibatches"
            )
        check_critic_steps(train, self.algorithm)
        device_of(train.device)
        env = self.make_env()
        if react.oracle and not has_oracle(env, "train"):
            needs = next(flag for flag, asks in asks_oracle.items() if asks)
            raise UserError(f"{needs} needs an oracle, and the environment {train.env} has none")
        name, count = train.backend
        self.apart = name != "local"
        try:
            backend = WORKERS.get(name)
        except ValueError as error:
            raise UserError(f"--workers {train.workers}: {error}") from None
        judge = remote_judge(judge_of)
        if judge:
            self.opened.callback(judge.close)
        # What can be refused was refused above: the tiny model may take minutes to make.
        spec = base_of(settings, console, train.device)
        base = load_base(spec)
        self.source, self.reference, self.chat = base.source, base.fingerprint, base.chat
        if resume is not None:
            read_run(folder).check(base)
        self.model, prompt = actor_of(base, settings)
        self.learner = Learner(self.model, self.algorithm, prompt, train)
        self.stream = TaskStream(env.tasks("train"), train.seed)
        play = settings.play(oracle=react.oracle)
        critic = settings.critic if self.search and isinstance(settings.critic, CriticSettings) else None
        setup = WorkerSetup(spec, settings.lora, play, train.threads, critic)
        workers = backend.open(
            WorkersOpening(
                count, setup, lambda: Worker(self.model.model, self.chat, play, self.source, self.critic(prompt))
            )
        )
        self.controller = Controller(workers, train.slots, settings.faults)
        self.opened.callback(self.controller.close)
        console.print(f"model: {workers.start()}", soft_wrap=True, highlight=False)
        console.print(self.model.summary(), soft_wrap=True, highlight=False)
        if judge_of is not None and judge is None:
            judge = local_judge(settings, self.model, base, lambda: self.update, console)
            self.opened.callback(judge.close)
        self.judging = judge and Judging(judge, judged(self.algorithm), folder)
        self.budget = Budget(train.updates, train.env_steps)
        state = None if resume is None else self.load(resume)
        self.ledger = Ledger(folder / "ledger.jsonl", state and state["ledger"])
        self.opened.callback(self.ledger.journal.close)
        self.report = Report(folder, train.updates, console, state and state["report"], train.env_steps)
        self.opened.callback(self.report.close)
        for journal in (self.ledger.journal, self.report.metrics, self.report.episodes):
            journal.cut()
        self.update = 0 if state is None else state["update"]
        self.advisor = Advisor(train, console)
        self.boundary = self.state()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def make_env(self) -> TextEnv:
        return registry.make(self.train.env, self.settings.env)

    def critic(self, prompt: Sequence[int] | None) -> Critic | None:
        """What searches in this process go by: the model itself, as it is when they are played."""
        return Critic(self.model, prompt, self.train.token_budget) if self.search else None

    def policy(self) -> Mapping[str, Tensor]:
        """What workers are sent; those of other processes that search need the value head too."""
        return self.model.adapter_state() if self.search and self.apart else self.model.policy_state()

    @property
    def seconds(self) -> float:
        """Seconds of work in this run, those before it was resumed included."""
        return time.monotonic() - self.began

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Trains to the end, or until Stopped, and returns the summary. Raises UserError."""
        with self.interrupts, self.report:
            try:
                if not self.update:
                    self.save()
                self.evaluate()
                while not self.budget.over(self.update):
                    self.next_update()
                    self.evaluate()
            except Stopped:
                if not self.saved(self.update):
                    self.save()
                raise
            except OSError as error:
                raise UserError(
                    f"cannot write {error.filename or self.folder} ({error.strerror or error}): make room, then "
                    f"--resume {self.folder}"
                ) from None
            with self.interrupts.shielded():
                return self.summarise()

    def next_update(self) -> None:
        update, started = self.update + 1, time.monotonic()
        jobs = self.jobs()
        self.ledger.dispatch(update, [job.id for job in jobs])
        self.controller.load(self.update, self.policy())
        played = self.controller.play(jobs, self.train.sampling(), plan=self.plan, search=self.search)
        seconds = time.monotonic() - started
        if played.episodes and not any(episode.turns for episode in played.episodes):
            raise UserError(f"no task fits --react.max-tokens {self.settings.react.max_tokens}: raise it")
        costs = search_costs if self.search else group_costs
        row = episode_stats(played, self.group) | costs(played.episodes)
        row |= {
            "sampled_tokens_per_s": sum(e.sampled_tokens for e in played.episodes) / seconds,
            "seconds_rollout": seconds,
            "seconds_env": played.seconds_env,
        }
        if self.judging:
            row |= self.judging.label(played.episodes)
        with self.interrupts.shielded():
            used = self.budget.used(self.update)
            self.budget.add(played.episodes)
            # A lone survivor of a group has nothing to be compared with.
            trees = grow(played.episodes, least=min(2, self.group))
            learned = self.learner.learn(update, trees, used)
            self.advisor.look_at(row | learned.row)
            self.account(update, played, trees, learned)
            self.report.outcomes(update, played.outcomes, learned.credited)
            spent = {"env_steps": self.budget.steps, "sampled_tokens": self.budget.tokens, "seconds": self.seconds}
            self.report.update(update, row | learned.row | spent)
            self.update = update
            self.boundary = self.state()
            if update % self.train.save_every == 0 or self.budget.over(update):
                self.save()

    def jobs(self) -> list[Job]:
        """What the next update plays: ``group`` episodes of each of its tasks, whether or not they fork."""
        jobs = []
        for _ in range(self.train.episodes // self.group):
            task, visit = next(self.stream)
            jobs += [Job(task, visit * self.group + g, self.train.seed) for g in range(self.group)]
        return jobs

    def account(self, update: int, played: Played, trees: Sequence[Tree], learned: Learned) -> None:
        """Writes into the ledger what became of every episode of this update."""
        for fault in played.faults:
            task, sample, attempt = fault.job.id
            self.ledger.drop(update, fault.job.id, str(fault))
            if attempt < self.settings.faults.retries:
                self.ledger.dispatch(update, [(task, sample, attempt + 1)])
        grown = {episode.job.id for tree in trees for episode, _ in tree.paths}
        for episode in played.episodes:
            if episode.job.id in learned.untrained:
                self.ledger.drop(update, episode.job.id, "the gradient was not finite")
            elif episode.job.id not in grown:
                self.ledger.drop(update, episode.job.id, "alone in its group" if episode.turns else "no turn fits")
        self.ledger.train(update, [e.job.id for e in played.episodes if e.job.id in grown - learned.untrained])

    # -- evaluation ----------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Measures success on fixed tasks, sampled and greedy, where this update asks for it."""
        train, update = self.train, self.update
        last = self.budget.over(update)
        if update == 0 or last:
            split, n = "test", train.test_tasks
        else:
            split, n = "valid", train.eval_tasks if train.eval_every and update % train.eval_every == 0 else 0
        if not n:
            return
        self.controller.load(update, self.model.policy_state())
        tasks = pick_tasks(self.make_env(), split, n)
        for mode, greedy in (("sampled", False), ("greedy", True)):
            result = evaluate_tasks(self.controller, train.sampling(greedy), tasks, self.console, seed=train.seed)
            self.report.evaluation(update, split, mode, result.success(), self.seconds)

    def summarise(self) -> dict[str, Any]:
        """Success before and after, read from the records, which also hold what came before a resume."""
        result: dict[str, Any] = {"start": {}, "final": {}}
        for entry in self.evaluations():
            if entry["split"] == "test":
                place = "start" if entry["update"] == 0 else "final"
                result[place][entry["mode"]] = {key: entry[key] for key in ("mean", "low", "high")}
        result["seconds"] = round(self.seconds, 1)
        draw_curve(self.folder, f"{self.train.env}, {self.train.algo}, seed {self.train.seed}")
        # Written last: it says that the run has ended.
        write_whole(self.folder / "summary.json", dump_json(result))
        return result

    def evaluations(self) -> list[dict[str, Any]]:
        lines = (self.folder / "metrics.jsonl").read_text("utf-8").splitlines()
        return [entry for entry in map(json.loads, lines) if entry["kind"] == "evaluation"]

    # -- checkpoints ---------------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def saved(self, update: int) -> bool:
        return (self.checkpoints / checkpoint.name_of(update)).exists()

    def state(self) -> dict[str, Any]:
        """All but the tensors that the next update depends on; the records are on the disk up to here."""
        return {
            "update": self.update,
            "seconds": self.seconds,
            "reference": self.reference,
            "stream": self.stream.state(),
            "learner": self.learner.counters(),
            "budget": self.budget.state(),
            "ledger": self.ledger.state(),
            "report": self.report.state(self.update),
        }

    def save(self) -> None:
        """Writes the checkpoint of the last finished update and removes those that are no longer kept."""

        def fill(folder: Path) -> None:
            self.model.save(folder)
            save_file(self.learner.tensors(), folder / OPTIMIZER)
            save_file(rng_state(), folder / RNG)
            (folder / STATE).write_text(dump_json(self.boundary), "utf-8")

        with self.interrupts.shielded():
            checkpoint.write(self.checkpoints / checkpoint.name_of(self.update), fill)
            checkpoint.prune(self.checkpoints, self.kept())

    def kept(self) -> set[int]:
        """Updates whose checkpoints stay: the newest ones, and the one that did best on validation tasks."""
        there = [checkpoint.update_of(path) for path in checkpoint.checkpoints(self.checkpoints)]
        valid = {e["update"]: e["mean"] for e in self.evaluations() if (e["split"], e["mode"]) == ("valid", "sampled")}
        best = [u for u in valid if u in there and valid[u] == max(valid.values())]
        return {*there[-self.train.keep_last :], *best[:1]}

    def load(self, folder: Path) -> dict[str, Any]:
        """Takes a checkpoint that was verified, and returns the rest of its state. Raises UserError."""
        state: dict[str, Any] = json.loads((folder / STATE).read_text("utf-8"))
        if state["reference"] != self.reference:
            raise UserError(
                f"{folder} belongs to another reference model: its KL divergence would be taken from another"
            )
        self.model.load(folder)
        self.learner.load_tensors(load_file(folder / OPTIMIZER))
        self.learner.load_counters(state["learner"])
        self.stream.load(state["stream"])
        self.budget.load(state["budget"])
        load_rng_state(load_file(folder / RNG))
        self.began -= state["seconds"]
        return state
