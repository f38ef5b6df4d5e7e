"""Over-provisioned rollouts: more groups begin than are needed, and the first complete ones end the rollout.

The engine's time goes to many episodes while a few long ones hold it up at the end. What is cut is given back as it
stands after its last turn, so that it can go on with a later policy: a partial rollout (Zhou et al. 2025, APRIL,
arXiv:2509.18521).

Invariants: with an ``exact`` scheduler, which groups are the first depends on the jobs, the policy and the portion, and
not on time. A turn that was not ended is never part of what is given back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agents.rollout.scheduler import Chain, Scheduler
from agents.rollout.slot import Slot
from agents.tree.episode import Episode, EpisodeId, Job


@dataclass(frozen=True)
class Quota:
    """When a rollout has enough. Jobs of a group stand together."""

    size: int
    """Episodes of a group."""
    groups: int
    """Groups that are needed; the others are cut."""
    must: int = 0
    """First groups that are not cut: they are among those that are needed."""
    begun: tuple[Episode, ...] = ()
    """What is there already of some jobs, which go on from it."""

    def divided(self, portions: Sequence[Sequence[Job]]) -> list["Quota"]:
        """The quotas of portions that are played apart: as many groups in all, spread over what need not end."""
        sizes = [len(jobs) // self.size for jobs in portions]
        free, before, quotas = sum(sizes) - self.must, 0, []
        for jobs, size in zip(portions, sizes, strict=True):
            must = min(size, max(0, self.must - before))
            # Rounding the sum, not the parts, gives away neither a group too many nor one too few.
            loose = max(0, before - self.must), max(0, before + size - self.must)
            first, last = (n * (self.groups - self.must) // free if free else 0 for n in loose)
            ids = {job.id for job in jobs}
            begun = tuple(episode for episode in self.begun if episode.job.id in ids)
            quotas.append(replace(self, groups=must + last - first, must=must, begun=begun))
            before += size
        return quotas


class FirstGroups(Chain):
    """Plays jobs until a quota of groups is complete."""

    def __init__(self, scheduler: Scheduler[Slot], quota: Quota) -> None:
        super().__init__(scheduler)
        jobs = scheduler.jobs
        if len(jobs) % quota.size or not quota.must <= quota.groups <= len(jobs) // quota.size:
            raise ValueError(f"{len(jobs)} jobs cannot meet {quota.groups} groups of {quota.size}")
        self.quota = quota
        self.left = [quota.size] * (len(jobs) // quota.size)
        """Episodes that are missing, by group."""
        self.complete: list[int] = []
        """Groups, in the order in which they became complete."""
        self.begun: dict[EpisodeId, Episode] = {episode.job.id: episode for episode in quota.begun}

    def admit(self) -> None:
        for session, job in enumerate(self.scheduler.jobs):
            begun = self.standing(job)
            if begun is not None and begun.over:
                self.scheduler.done[session] = begun
                self.ended(session)
            else:
                self.scheduler.waiting.append((session, job))

    def ended(self, session: int) -> None:
        group = session // self.quota.size
        self.left[group] -= 1
        if not self.left[group]:
            self.complete.append(group)

    def enough(self) -> bool:
        return len(self.complete) >= self.quota.groups and not any(self.left[: self.quota.must])

    def taken(self) -> list[int]:
        first = [group for group in self.complete if group >= self.quota.must]
        groups = [*range(self.quota.must), *first[: self.quota.groups - self.quota.must]]
        return [group * self.quota.size + i for group in sorted(groups) for i in range(self.quota.size)]

    def standing(self, job: Job) -> Episode | None:
        return self.begun.get(job.id)
