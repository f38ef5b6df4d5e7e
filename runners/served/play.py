"""Plays tasks with a served model: many episodes at once, each kept as soon as it ends.

Invariant: whatever ends the playing (the endpoint, an environment, an interrupt), episodes that ended before are kept.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any

from agent_envs import registry
from agent_envs.core import PlayableEnv, Task
from agent_envs.isolation.faults import EnvFault, HostLost, Stage, blamed
from agent_envs.isolation.hosts import EnvHosts
from agents.endpoint.client import EndpointError
from agents.endpoint.crew import Crew
from agents.endpoint.served import ServedModel
from agents.rollout.chat_player import ChatPlayer, Speaker
from agents.rollout.slot import close_all
from agents.tree.episode import Fault, Job, Served
from runners.command_line.errors import UserError
from runners.evaluation.measure import PlayedTasks
from runners.served.kept import Kept, Key
from runners.served.settings import EvaluateServed
from runners.workers.fault_rate import FaultRate

MODES = ("sampled", "greedy")


@dataclass
class Play:
    """The playing of one environment's tasks."""

    evaluate: EvaluateServed
    parts: dict[str, Any]
    env: str
    model: ServedModel
    kept: Kept
    on_end: Callable[[], object] = lambda: None
    modes: Sequence[str] = MODES
    """What is played: sampled episodes, the greedy one, or both."""
    spare: list[PlayableEnv] = field(default_factory=list)
    """Environments of episodes that are over, for the next ones."""

    def __post_init__(self) -> None:
        self._lock, self._gone, self.last_end = threading.Lock(), threading.Event(), monotonic()
        self._rate = FaultRate(self.parts["faults"])

    def play(self, tasks: Sequence[Task]) -> dict[str, PlayedTasks]:
        """{"sampled": …, "greedy": …}, those of `modes`. Raises UserError."""
        per_task = {"sampled": self.evaluate.samples, "greedy": 1}
        jobs = [
            (mode, Job(task, sample, self.evaluate.seed))
            for mode in self.modes
            for task in tasks
            for sample in range(per_task[mode])
        ]
        found: dict[Key, Served | Fault | None] = {}
        for mode, job in jobs:
            found[self.key(mode, job)] = self.kept.get(self.key(mode, job), job)
        todo = [one for one in jobs if found[self.key(*one)] is None]
        with self._hosts() as self.hosts:
            crew = Crew(self.parts["served"].concurrent, self._gone)
            outcomes = crew.map(lambda one: self._outcome(*one), todo, self._check_progress)
        found |= {self.key(*one): outcome for one, outcome in zip(todo, outcomes, strict=True)}
        if faults := [outcome for outcome in found.values() if isinstance(outcome, Fault)]:
            for mode in self.modes:
                if all(isinstance(found[self.key(*one)], Fault) for one in jobs if one[0] == mode):
                    raise UserError(f"no {mode} episode was played to its end; the last one failed with: {faults[-1]}")
        ended = {mode: [found[self.key(*one)] for one in jobs if one[0] == mode] for mode in self.modes}
        return {mode: PlayedTasks(tuple(filter(None, ended[mode])), per_task[mode]) for mode in self.modes}

    def key(self, mode: str, job: Job) -> Key:
        return self.env, mode, job.task.id, job.sample

    @contextmanager
    def _hosts(self) -> Iterator[EnvHosts]:
        """The processes of the environments. What an episode still does in one ends with it."""
        kind, settings = registry.env_class(self.env), self.parts[self.env]
        with EnvHosts(partial(kind, settings), self.parts["envs"]) as hosts:
            try:
                yield hosts
            finally:
                self._gone.set()

    def _outcome(self, mode: str, job: Job) -> Served | Fault:
        """One job, played again where its environment broke. Raises UserError."""
        speaker = Speaker(self.model, 0.0 if mode == "greedy" else self.evaluate.temperature)
        while True:
            try:
                episode = self._played(job, speaker)
            except EnvFault as error:
                fault = Fault.of(job, error)
                with self._lock:
                    self._rate.add(1, 1, fault)
                if job.attempt >= self.parts["faults"].retries:
                    return fault
                job = replace(job, attempt=job.attempt + 1)
                continue
            except EndpointError as error:
                raise UserError(str(error)) from None
            self.kept.add(self.env, mode, episode)
            with self._lock:
                self._rate.add(0, 1, None)
                self.last_end = monotonic()
                self.on_end()
            return episode

    def _played(self, job: Job, speaker: Speaker) -> Served:
        """Raises EnvFault and EndpointError."""
        with self._lock:
            env = self.spare.pop() if self.spare else None
        while env is None:
            with suppress(HostLost), blamed(Stage.MAKE):
                env = self.hosts.make()
        player = ChatPlayer(env, self.hosts.make, job, self.parts["react"], speaker)
        try:
            episode = player.play()
        except BaseException:
            close_all([player.env])
            raise
        with self._lock:
            self.spare.append(player.env)
        return episode

    def _check_progress(self) -> None:
        limit = self.parts["faults"].stall_seconds
        if monotonic() - self.last_end > limit:
            raise UserError(
                f"no episode has ended for {limit:g} s: raise --faults.stall-seconds, or look at the server"
            )
