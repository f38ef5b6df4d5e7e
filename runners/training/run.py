"""A training run: its parts, its loop, and the state from which it resumes.

Read ``Training.run`` first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor

from agents.model.settings import CriticSettings
from agents.model.state_values import Critic
from agents.rollout.forking.settings import ForkPlan
from agents.tree.episode import Job
from agents.tree.merge import Tree, grow
from runners.command_line.errors import UserError, place_of
from runners.command_line.outputs import writing
from runners.command_line.plain import dump_json
from runners.evaluation.tasks import SplitTasks
from runners.loading.base_model import BaseSpec, actor_of, load_base
from runners.run_folder import checkpoint
from runners.run_folder.checkpoint import RNG, STATE
from runners.run_folder.folder import hold, write_whole
from runners.run_folder.runs import base_of, read_run
from runners.settings.play_settings import job_env
from runners.settings.run_settings import RunSettings
from runners.training.advice import Advisor
from runners.training.budget import Budget
from runners.training.closing import draw_curve
from runners.training.continuations import Continuations, Continued
from runners.training.evaluations import evaluations_of, summary_of, validated
from runners.training.generators import load_rng_state, rng_state
from runners.training.interrupts import Interrupts, Stopped
from runners.training.judging import Judging, local_judge, remote_judge
from runners.training.learner import Learned, Learner
from runners.training.ledger import Ledger
from runners.training.measuring import Measuring
from runners.training.phases import Clock
from runners.training.preconditions import Checked, checked
from runners.training.profiling import Profiling
from runners.training.ranks import RankedLearner, RankSetup
from runners.training.records import episode_stats, group_costs, stats_by_env
from runners.training.report import Report
from runners.training.rollouts import Plans, Rollout, Rollouts
from runners.training.searching import search_costs
from runners.training.stream import MixedStream
from runners.training.threads import compute_in_threads
from runners.workers.controller import Controller
from runners.workers.registry import WorkersOpening
from runners.workers.serve import WorkerSetup
from runners.workers.states import WORKER_LOG, WorkerLog
from runners.workers.worker import Worker


class Training:
    """One run: its parts and its loop. ``resume`` is the checkpoint to resume from.

    Invariant: between two updates everything that later episodes and updates depend on is in the parameters and in
    ``state``; a run that goes on from there is bit-identical. Use as a context manager.
    """

    def __init__(self, settings: RunSettings, folder: Path, console: Console, resume: Path | None = None) -> None:
        self.settings, self.train, self.folder, self.console = settings, settings.train, folder, console
        self.began = self.taken = time.monotonic()
        """When the run began, and when the episodes of the last update had been played."""
        self.interrupts, self.clock = Interrupts(), Clock()
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
        compute_in_threads(train)
        self.algorithm = settings.algorithm
        sampling = self.algorithm.sampling
        self.group = sampling.group
        self.plan = None if sampling.initial is None else ForkPlan(sampling, self.algorithm.branch)
        found = checked(settings, console, begun=resume is not None)
        self.search, self.apart = found.search, found.apart
        judge = remote_judge(found.judge)
        if judge:
            self.opened.callback(judge.close)
        spec = base_of(settings, console, train.device)
        base = load_base(spec, console)
        self.source, self.chat = base.source, base.chat
        self.reference = base.fingerprint if resume is None else read_run(folder).check(base)
        self.model, prompt = actor_of(base, settings)
        if train.ranks.size == 1:
            self.learner = Learner(self.model, self.algorithm, prompt, train)
        else:
            ranks = RankSetup(settings, spec, folder, resume, rank=0)
            self.learner = RankedLearner(self.model, self.algorithm, prompt, train, ranks)
            self.opened.callback(self.learner.close)
            console.print(f"learner: {train.ranks}", highlight=False)
        self.stream = MixedStream(found.tasks, train.shares, train.seed)
        self.update = 0 if resume is None else checkpoint.update_of(resume)
        self.controller = self.workers(found, spec, prompt)
        console.print(self.model.summary(), soft_wrap=True, highlight=False)
        console.print(f"attention: {self.model.attention}, {self.model.how}", soft_wrap=True, highlight=False)
        if found.judge is not None and judge is None:
            judge = local_judge(settings, self.model, base, lambda: self.update, console)
            self.opened.callback(judge.close)
        self.judging = judge and Judging(judge, self.algorithm, folder)
        self.budget = Budget(train.updates, train.env_steps)
        state = None if resume is None else self.load(resume)
        with writing(folder):
            self.open_records(console, state)
        plans = Plans(self.group, self.plan, self.search, settings.faults.retries, self.algorithm.sampling.resample)
        self.rollouts = Rollouts(self.controller, self.stream, self.jobs, self.ledger, train, plans)
        if state is not None:
            self.rollouts.go_on(json.loads(state.get("partial", "[]")), lambda one: self.job_again(found.tasks, one))
        self.measuring = Measuring(found.measured, train, self.controller, self.report, console)
        self.advisor = Advisor(train, console, gpu=self.model.device.type == "cuda")
        self.boundary, self.drawn = self.state(), rng_state()
        """Of the last finished update: what a stop between two checkpoints saves."""

    def workers(self, found: Checked, spec: BaseSpec, prompt: Sequence[int] | None) -> Controller:
        """Opens the workers that play the episodes, and starts them. Raises UserError."""
        settings, train, console = self.settings, self.train, self.console
        play = settings.play(oracle=found.oracle)
        critic = settings.critic if self.search and isinstance(settings.critic, CriticSettings) else None
        setup = WorkerSetup(spec, settings.lora, play, train.threads, critic)

        def local() -> Worker:
            play.engine.check(apart=False)
            return Worker(self.model.model, self.chat, play, self.source, self.critic(prompt))

        log = WorkerLog(self.folder / WORKER_LOG, lambda: self.update)
        _, count = train.backend
        workers = found.backend.open(WorkersOpening(count, setup, local, settings.ray, log))
        controller = Controller(workers, train.slots, settings.faults)
        self.opened.callback(controller.close)
        console.print(f"model: {workers.start()}", soft_wrap=True, highlight=False)
        together = self.group if self.plan else 1
        if idle := controller.idle(train.episodes, together, count, train.staleness):
            console.print(idle, soft_wrap=True, highlight=False)
        return controller

    def open_records(self, console: Console, state: Mapping[str, Any] | None) -> None:
        """Opens the files that grow with the run, and cuts off what came after ``state``. Raises OSError."""
        self.ledger = Ledger(self.folder / "ledger.jsonl", state and state["ledger"])
        self.opened.callback(self.ledger.journal.close)
        train = self.train
        named = [name for name in train.env if job_env(name, train.env)]
        self.report = Report(self.folder, train.updates, console, state and state["report"], train.env_steps, named)
        self.opened.callback(self.report.close)
        for journal in (self.ledger.journal, self.report.metrics, self.report.episodes):
            journal.cut()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.opened.close()
        except OSError as error:  # what was not written yet did not fit
            raise self.unwritten(error) from None

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
                next_update: Callable[[], object] = self.next_update
                if self.train.profile:
                    left = self.train.updates - self.update
                    next_update = partial(Profiling(self.folder, left, self.console).run, self.next_update)
                while not self.budget.over(self.update):
                    next_update()
                    self.evaluate()
                with self.interrupts.shielded():
                    return self.summarise()
            except Stopped:
                if not self.saved(self.update):
                    self.save()
                raise
            except OSError as error:
                raise self.unwritten(error) from None

    def unwritten(self, error: OSError) -> UserError:
        return UserError(
            f"cannot write {place_of(error) or self.folder} ({error.strerror or error}): make room, then "
            f"--resume {self.folder}"
        )

    def next_update(self) -> Mapping[str, float]:
        """Plays, learns and records; returns the numbers of the update."""
        self.clock.begin()
        update, started = self.update + 1, time.monotonic()
        rollout = self.rollouts.next(update, self.policy)
        played = rollout.played
        now = time.monotonic()
        seconds = now - started
        since, self.taken = self.taken if self.train.ahead else started, now
        if played.episodes and not any(episode.turns for episode in played.episodes):
            raise UserError(f"no task fits --react.max-tokens {self.settings.react.max_tokens}: raise it")
        costs = search_costs if self.search else group_costs
        row = episode_stats(played, self.group) | costs(played.episodes) | stats_by_env(played, self.group)
        row |= {
            **rollout.numbers,
            "seconds_rollout": seconds,
            "seconds_env": played.seconds_env,
        }
        if self.judging:
            row |= self.judging.label(played.episodes)
        # A lone survivor of a group has nothing to be compared with.
        kept = [episode for episode in played.episodes if episode.job.id not in rollout.left_out]
        trees = grow(kept, least=min(2, self.group))
        continued = self.continued(trees) if self.algorithm.needs.continuations else None
        with self.interrupts.shielded():
            used = self.budget.used(self.update)
            tokens = self.budget.add([*played.episodes, *rollout.cut], rollout.before)
            row["sampled_tokens_per_s"] = tokens / (now - since)
            if continued is not None:
                row |= continued.costs(self.budget, counted=self.algorithm.needs.count_continuations)
            learned = self.learner.learn(update, trees, used)
            self.advisor.look_at(row | learned.row)
            self.account(update, rollout, trees, learned)
            self.report.outcomes(update, played.outcomes, learned.credited)
            spent = {"env_steps": self.budget.steps, "sampled_tokens": self.budget.tokens, "seconds": self.seconds}
            row |= learned.row | spent
            row["seconds_processor"] = self.clock.processor()
            row["seconds_other"] = self.clock.other(row)
            self.report.update(update, row)
            self.update = update
            if self.budget.over(update):
                self.rollouts.abandon(update)
            self.boundary, self.drawn = self.state(), rng_state()
            if update % self.train.save_every == 0 or self.budget.over(update):
                self.save()
        self.clock.end()
        return row

    def continued(self, trees: Sequence[Tree]) -> Continued:
        """What the policy played on from the states of ``trees``, which now have values."""
        how = self.train.sampling(), self.algorithm.needs, self.settings.faults.retries
        return Continuations(self.controller, *how).play(trees)

    def jobs(self, tasks: int) -> list[Job]:
        """What is played of the next ``tasks`` tasks: ``group`` episodes of each, whether or not they fork."""
        jobs = []
        for _ in range(tasks):
            env, task, visit = next(self.stream)
            name = job_env(env, self.train.env)
            jobs += [Job(task, visit * self.group + g, self.train.seed, env=name) for g in range(self.group)]
        return jobs

    def job_again(self, tasks: Mapping[str, SplitTasks], one: Mapping[str, Any]) -> Job:
        """The job of an episode that a checkpoint holds. Raises UserError where its task is gone."""
        task = tasks[one["env"] or self.train.env[0]].find(one["task"])
        if task is None:
            raise UserError(f"the training task {one['task']}, an episode of which goes on, is no longer there")
        return Job(task, one["sample"], self.train.seed, one["attempt"], one["env"])

    def account(self, update: int, rollout: Rollout, trees: Sequence[Tree], learned: Learned) -> None:
        """Writes into the ledger what became of every episode of this update that was played to its end."""
        played, grown = rollout.played, {episode.job.id for tree in trees for episode, _ in tree.paths}
        for episode in played.episodes:
            if episode.job.id in rollout.left_out:
                self.ledger.drop(update, episode.job.id, "its group has equal returns")
            elif reason := learned.untrained.get(episode.job.id):
                self.ledger.drop(update, episode.job.id, reason)
            elif episode.job.id not in grown:
                self.ledger.drop(update, episode.job.id, "alone in its group" if episode.turns else "no turn fits")
        self.ledger.train(update, [e.job.id for e in played.episodes if e.job.id in grown - learned.untrained.keys()])

    # -- evaluation ----------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Measures success on fixed tasks, where this update asks for it."""
        if split := self.measuring.due(self.update, self.budget.over(self.update)):
            self.measuring.measure(split, self.update, self.model.policy_state(), lambda: self.seconds)

    def summarise(self) -> dict[str, Any]:
        """Success before and after, read from the records, which also hold what came before a resume."""
        train = self.train
        result = summary_of(evaluations_of(self.folder), train.env) | {"seconds": round(self.seconds, 1)}
        several = len(train.env) > 1
        draw_curve(self.folder, f"{'' if several else f'{train.envs}, '}{train.algo}, seed {train.seed}", train.env)
        # Written last: it says that the run has ended.
        write_whole(self.folder / "summary.json", dump_json(result))
        return result

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
            "settings": self.settings.plain(),
            "reference": self.reference,
            "stream": self.rollouts.state(),
            # As one string of ASCII: what was played may hold anything.
            "partial": json.dumps(self.rollouts.partial.plain()),
            "learner": self.learner.counters(),
            "budget": self.budget.state(),
            "ledger": self.ledger.state(self.rollouts.open()),
            "report": self.report.state(self.update),
        }

    def save(self) -> None:
        """Writes the checkpoint of the last finished update and removes those that are no longer kept."""

        def fill(folder: Path) -> None:
            self.learner.save(folder)
            save_file(self.drawn, folder / RNG)
            (folder / STATE).write_text(dump_json(self.boundary), "utf-8")

        with self.interrupts.shielded():
            checkpoint.write(self.checkpoints / checkpoint.name_of(self.update), fill)
            checkpoint.prune(self.checkpoints, self.kept())

    def kept(self) -> set[int]:
        """Updates whose checkpoints stay: the newest ones, and the one that did best on validation tasks."""
        there = [checkpoint.update_of(path) for path in checkpoint.checkpoints(self.checkpoints)]
        there = [update for update in there if update <= self.update]  # later ones were damaged
        valid = validated(evaluations_of(self.folder))
        best = [u for u in valid if u in there and valid[u] == max(valid.values())]
        return {*there[-self.train.keep_last :], *best[:1]}

    def load(self, folder: Path) -> dict[str, Any]:
        """Takes a checkpoint that was verified, and returns the rest of its state. Raises UserError."""
        state: dict[str, Any] = json.loads((folder / STATE).read_text("utf-8"))
        if state["reference"] != self.reference:
            raise UserError(
                f"{folder} belongs to another reference model: its KL divergence would be taken from another"
            )
        self.learner.load(folder, state["learner"])
        self.stream.load(state["stream"])
        self.budget.load(state["budget"])
        load_rng_state(load_file(folder / RNG))
        self.began -= state["seconds"]
        return state
