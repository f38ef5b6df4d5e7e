"""The episodes of an update: played when it begins or, with a staleness, while earlier updates learn.

Invariants:

- A batch is the episodes of one update. That of update b is played as a whole with the policy after update
  max(0, b - 1 - S), so that a run with the same seed is the same whatever the timing.
- With i updates done at most B (i + 1 + S) episodes were dispatched: AReaL's admission, floor((N - 1) / B) <= i + S for
  the N-th of them (Fu et al. 2025, arXiv:2505.24298, eq. 3).
- With partial rollouts nothing is played ahead: an update plays its own episodes, and what it cuts goes on in the next
  one, for at most S updates.
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
from agents.rollout.quota import Quota
from agents.rollout.search.settings import SearchPlan
from agents.tree.episode import Episode, EpisodeId, Fault, Job
from runners.settings.train_settings import Train
from runners.training.ledger import Ledger
from runners.training.partial import FindJob, PartialRollouts
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
    cut: Sequence[Episode] = ()
    """What was played of others, which are dropped or go on in the next update."""
    before: Mapping[EpisodeId, int] = field(default_factory=dict)
    """Turns that were played in earlier updates, by episode."""


class Rollouts:
    """Has the tasks of a stream played; ``draw`` takes the jobs of that many tasks from it."""

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
        self.partial = PartialRollouts(plans.group)
        """What goes on in the next update."""

    @property
    def tasks(self) -> int:
        """Tasks of one update."""
        return self.train.episodes // self.plans.group

    def next(self, update: int, policy: Policy) -> Rollout:
        """The episodes of ``update``; ``policy`` is that after the update before it."""
        if self.train.ahead:
            self.admit(update, policy)
            played = self.controller.collect(self.ahead.popleft().futures)
            self.ledger.broke(update, played.faults, self.plans.retries)
            return self.trimmed(update, self.fresh_enough(update, played))
        if self.train.overprovision:
            return self.first_groups(update, policy)
        jobs = self.draw(self.tasks)
        self.controller.load(update - 1, policy())
        played = self.account(update, jobs)
        if not self.plans.resample:
            return Rollout(played)
        play = partial(self.account, update)
        played, left_out = resampled(played, play, self.draw, self.plans.group, self.plans.resample)
        replaced = len(played.outcomes) // self.plans.group - self.tasks
        return Rollout(played, {"resampled_tasks": float(replaced)}, left_out)

    def first_groups(self, update: int, policy: Policy) -> Rollout:
        """The first groups that are complete, of those that go on and of new ones."""
        before = self.partial.turns()
        going_on = self.partial.jobs
        # In the next update, what is now S updates old would be too old.
        quota = self.partial.quota(self.tasks, oldest=update - 1 - self.train.staleness)
        begun = len(going_on) // self.plans.group
        jobs = going_on + self.draw(self.tasks + self.train.overprovision - begun)
        self.controller.load(update - 1, policy())
        played = self.account(update, jobs, quota)
        rollout = self.fresh_enough(update, played) if self.train.staleness else Rollout(played)
        rollout = self.trimmed(update, replace(rollout, before=before))
        return replace(rollout, numbers={**rollout.numbers, "continued": float(len(going_on))})

    def trimmed(self, update: int, rollout: Rollout) -> Rollout:
        """Keeps or drops what a quota cut."""
        if not self.train.overprovision:
            return rollout
        cuts = rollout.played.cut
        lost = self.partial.keep(cuts) if self.train.partial_rollouts else cuts
        for cut in lost:
            self.ledger.drop(update, cut.job.id, "cut: enough other groups were complete")
        episodes = [cut.episode for cut in cuts if cut.episode is not None]
        return replace(rollout, cut=episodes, numbers={**rollout.numbers, "cut": float(len(cuts))})

    def admit(self, update: int, policy: Policy) -> None:
        """Dispatches the batches that may be played from now on, with the newest policy."""
        self.controller.load(update - 1, policy())
        last = update + self.train.staleness
        if not self.train.env_steps:
            last = min(last, self.train.updates)
        extra = self.train.overprovision
        quota = Quota(self.plans.group, self.tasks) if extra else None
        while update + len(self.ahead) <= last:
            before = self.stream.state()
            jobs = self.draw(self.tasks + extra)
            self.ledger.dispatch(update + len(self.ahead), [job.id for job in jobs])
            futures = self.controller.dispatch(jobs, self.train.sampling(), **self.how(quota))
            self.ahead.append(Batch(jobs, futures, before))

    def account(self, update: int, jobs: Sequence[Job], quota: Quota | None = None) -> Played:
        """Plays the jobs for ``update``; the ledger knows of them."""
        going_on = {job.id for job in self.partial.jobs}
        self.ledger.dispatch(update, [job.id for job in jobs if job.id not in going_on])
        played = self.controller.play(jobs, self.train.sampling(), **self.how(quota))
        self.ledger.broke(update, played.faults, self.plans.retries)
        return played

    def how(self, quota: Quota | None) -> dict[str, Any]:
        """How jobs become episodes, for the controller."""
        return {"plan": self.plans.forks, "search": self.plans.search, "quota": quota}

    def fresh_enough(self, update: int, played: Played) -> Rollout:
        """Plays tasks again, with the newest policy, of which an action is too old to be trained on in ``update``."""
        oldest = update - 1 - self.train.staleness

        def of_task(outcome: Episode | Fault) -> tuple[str, int]:
            return outcome.job.group(self.plans.group)

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
                played.cut,
            )
        ages = [update - 1 - action.version for e in played.episodes for action, _ in e.turns]
        return Rollout(played, {"lag": float(max(ages, default=0)), "too_stale": float(counted)})

    def go_on(self, partial: Sequence[Mapping[str, Any]], job_of: FindJob) -> None:
        """Takes the partial rollouts of a checkpoint; ``job_of`` finds the job of one."""
        self.partial.load(partial, job_of)
        self.ledger.go_on(job.id for job in self.partial.jobs)

    def abandon(self, update: int) -> None:
        """Drops what was played ahead: the run has ended."""
        for batch in self.ahead:
            for future in batch.futures:
                future.cancel()
        self.ahead.clear()
        self.partial.keep([])
        self.ledger.end(update)

    def state(self) -> Mapping[str, Any]:
        """The task stream as it was before the first task that is dispatched again after a stop."""
        return self.ahead[0].before if self.ahead else self.stream.state()

    def open(self) -> set[tuple[str, int, int]]:
        """Ids of the episodes that are played ahead, or go on."""
        return {job.id for batch in self.ahead for job in batch.jobs} | {job.id for job in self.partial.jobs}
