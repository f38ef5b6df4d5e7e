"""The episodes of an update: played when it begins or, with a staleness, while earlier updates learn.

Invariants:

- A batch is the episodes of one update. That of update b is played as a whole with the policy after update
  max(0, b - 1 - S), so that a run with the same seed is the same whatever the timing.
- With i updates done at most B (i + 1 + S) episodes were dispatched: AReaL's admission, floor((N - 1) / B) <= i + S for
  the N-th of them (Fu et al. 2025, arXiv:2505.24298, eq. 3).
- No action is trained on whose policy is more than S updates old: that is checked once more when a batch is taken, and
  what is too old is played again.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from agents.rollout.forking.settings import ForkPlan
from agents.rollout.play import Played
from agents.rollout.search.settings import SearchPlan
from agents.tree.episode import Episode, EpisodeId, Fault, Job
from runners.settings.run_settings import Train
from runners.training.ledger import Ledger
from runners.training.resampling import resampled
from runners.training.stream import MixedStream, TaskStream
from runners.workers.controller import Controller

Policy = Callable[[], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Batch:
    """The episodes of one update, which are being played."""

    jobs: Sequence[Job]
    futures: Sequence[Future[Played]]
    before: Mapping[str, Any]
    """State of the task stream from which they are drawn again."""


@dataclass(frozen=True)
class Plans:
    """How tasks are played: ``group`` episodes of each, which may fork, or a search."""

    group: int
    forks: ForkPlan | None = None
    search: SearchPlan | None = None
    retries: int = 0
    """Times an episode whose environment broke is played again."""
    resample: int = 0
    """Times that other tasks are drawn in place of those that teach nothing."""


@dataclass(frozen=True)
class Rollout:
    """What an update learns from."""

    played: Played
    numbers: Mapping[str, float] = field(default_factory=dict)
    """About the age of the episodes, or about tasks that were replaced."""
    left_out: frozenset[EpisodeId] = frozenset()
    """Episodes that were played and teach nothing."""


class Rollouts:
    """Has the tasks of a stream played; ``draw`` takes the jobs of so many tasks from it."""

    def __init__(
        self,
        controller: Controller,
        stream: TaskStream | MixedStream,
        draw: Callable[[int], list[Job]],
        ledger: Ledger,
        train: Train,
        plans: Plans,
    ) -> None:
        self.controller, self.stream, self.draw, self.ledger = controller, stream, draw, ledger
        self.train, self.plans = train, plans
        self.ahead: deque[Batch] = deque()
        """Batches of the next updates, the nearest one first."""

    @property
    def tasks(self) -> int:
        """Tasks of one update."""
        return self.train.episodes // self.plans.group

    def next(self, update: int, policy: Policy) -> Rollout:
        """The episodes of ``update``; ``policy`` is that after the update before it."""
        if not self.train.staleness:
            jobs = self.draw(self.tasks)
            self.controller.load(update - 1, policy())
            played = self.account(update, jobs)
            if not self.plans.resample:
                return Rollout(played)
            play = partial(self.account, update)
            played, left_out = resampled(played, play, self.draw, self.plans.group, self.plans.resample)
            replaced = len(played.outcomes) // self.plans.group - self.tasks
            return Rollout(played, {"resampled_tasks": float(replaced)}, left_out)
        self.admit(update, policy)
        played = self.controller.collect(self.ahead.popleft().futures)
        self.ledger.broke(update, played.faults, self.plans.retries)
        return self.fresh_enough(update, played)

    def admit(self, update: int, policy: Policy) -> None:
        """Dispatches the batches that may be played from now on, with the newest policy."""
        self.controller.load(update - 1, policy())
        last = update + self.train.staleness
        if not self.train.env_steps:
            last = min(last, self.train.updates)
        while update + len(self.ahead) <= last:
            before = self.stream.state()
            jobs = self.draw(self.tasks)
            self.ledger.dispatch(update + len(self.ahead), [job.id for job in jobs])
            futures = self.controller.dispatch(
                jobs, self.train.sampling(), plan=self.plans.forks, search=self.plans.search
            )
            self.ahead.append(Batch(jobs, futures, before))

    def account(self, update: int, jobs: Sequence[Job]) -> Played:
        """Plays the jobs for ``update``; the ledger knows of them."""
        self.ledger.dispatch(update, [job.id for job in jobs])
        played = self.play(jobs)
        self.ledger.broke(update, played.faults, self.plans.retries)
        return played

    def play(self, jobs: Sequence[Job]) -> Played:
        return self.controller.play(jobs, self.train.sampling(), plan=self.plans.forks, search=self.plans.search)

    def fresh_enough(self, update: int, played: Played) -> Rollout:
        """Plays tasks again, with the newest policy, of which an action is too old to be trained on in ``update``."""
        oldest = update - 1 - self.train.staleness

        def of_task(outcome: Episode | Fault) -> tuple[str, int]:
            return outcome.job.task_id, outcome.job.sample // self.plans.group

        stale = {of_task(e) for e in played.episodes if any(action.version < oldest for action, _ in e.turns)}
        counted = 0
        if stale:
            gone = [outcome for outcome in played.outcomes if of_task(outcome) in stale]
            for outcome in gone:
                if isinstance(outcome, Episode):
                    self.ledger.drop(update, outcome.job.id, f"too stale: older than the policy after update {oldest}")
                    counted += 1
            jobs = [replace(outcome.job, attempt=outcome.job.attempt + 1) for outcome in gone]
            again = self.account(update, jobs)
            others = iter(again.outcomes)
            played = Played(
                [next(others) if of_task(outcome) in stale else outcome for outcome in played.outcomes],
                played.faults + again.faults,
                played.seconds_env + again.seconds_env,
            )
        ages = [update - 1 - action.version for e in played.episodes for action, _ in e.turns]
        return Rollout(played, {"lag": float(max(ages, default=0)), "too_stale": float(counted)})

    def abandon(self, update: int) -> None:
        """Drops what was played ahead: the run has ended."""
        for batch in self.ahead:
            for future in batch.futures:
                future.cancel()
        self.ahead.clear()
        self.ledger.end(update)

    def state(self) -> Mapping[str, Any]:
        """The task stream as it was before the first task that is not trained on yet."""
        return self.ahead[0].before if self.ahead else self.stream.state()

    def open(self) -> set[tuple[str, int, int]]:
        """Ids of the episodes that are played ahead."""
        return {job.id for batch in self.ahead for job in batch.jobs}
