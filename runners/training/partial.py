"""Partial rollouts: groups that an update cut, which go on in the next one (APRIL, arXiv:2509.18521).

Invariant: a group that would be too old in the update after the next one must end in the next one. A checkpoint holds
what has been played of each.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from agents.rollout.quota import Quota
from agents.rollout.scheduler import Cut
from agents.tree.episode import Episode, EpisodeId, Job
from agents.tree.plain_episode import episode_of, plain_episode

FindJob = Callable[[Mapping[str, Any]], Job]


class PartialRollouts:
    """The groups of ``size`` episodes that go on, those with the oldest actions first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.groups: list[tuple[Cut, ...]] = []

    @property
    def kept(self) -> list[Cut]:
        return [cut for group in self.groups for cut in group]

    @property
    def jobs(self) -> list[Job]:
        return [cut.job for cut in self.kept]

    @property
    def episodes(self) -> list[Episode]:
        return [cut.episode for cut in self.kept if cut.episode is not None]

    def turns(self) -> dict[EpisodeId, int]:
        """Turns of each episode so far."""
        return {episode.job.id: len(episode.turns) for episode in self.episodes}

    def keep(self, cuts: Sequence[Cut]) -> list[Cut]:
        """Keeps the whole groups among them in place of those before; returns the rest, which lost an episode to its
        environment."""
        groups = [tuple(members) for _, members in groupby(cuts, lambda cut: cut.job.group(self.size))]
        self.groups = sorted((group for group in groups if len(group) == self.size), key=_oldest)
        return [cut for group in groups if len(group) < self.size for cut in group]

    def quota(self, groups: int, oldest: int) -> Quota:
        """``groups`` are needed; a group whose oldest action is of policy ``oldest`` or before must end."""
        must = sum(_oldest(group) <= oldest for group in self.groups)
        return Quota(self.size, groups, must, tuple(self.episodes))

    def plain(self) -> list[dict[str, Any]]:
        """Plain values for JSON."""
        return [
            {"env": cut.job.env, "task": cut.job.task.id, "sample": cut.job.sample, "attempt": cut.job.attempt}
            | {"episode": None if cut.episode is None else plain_episode(cut.episode)}
            for cut in self.kept
        ]

    def load(self, values: Sequence[Mapping[str, Any]], job_of: FindJob) -> None:
        """Takes what `plain` gave; ``job_of`` finds the job again."""
        cuts = []
        for one in values:
            job = job_of(one)
            cuts.append(Cut(job, None if one["episode"] is None else episode_of(job, one["episode"])))
        self.groups = [tuple(cuts[i : i + self.size]) for i in range(0, len(cuts), self.size)]


def _oldest(group: Sequence[Cut]) -> float:
    """The oldest policy of a group's actions; infinity where there is none."""
    turns = (turn for cut in group if cut.episode is not None for turn in cut.episode.turns)
    return min((action.version for action, _ in turns), default=float("inf"))
