"""Dynamic sampling: other tasks in the place of those that teach nothing (DAPO, Yu et al. 2025, arXiv:2503.14476, 3.2).

A group whose episodes all have the same return has advantages of 0. Such a group is left out of the update, and another
task is played in its place, until enough groups differ or the rounds are used up. Everything counts as played.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from agents.rollout.play import Played
from agents.tree.episode import Episode, EpisodeId, Fault, Job
from algorithms.formulas.maths import SAME


def equal_groups(outcomes: Sequence[Episode | Fault], group: int) -> list[list[Episode | Fault]]:
    """The groups without two returns that differ, those that broke included. Outcomes of a group stand together."""
    groups = [list(members) for _, members in groupby(outcomes, lambda outcome: outcome.job.group(group))]
    return [members for members in groups if _spread([e.reward for e in members if isinstance(e, Episode)]) <= SAME]


def _spread(returns: Sequence[float]) -> float:
    return max(returns) - min(returns) if returns else 0.0


def resampled(
    first: Played, play: Callable[[Sequence[Job]], Played], draw: Callable[[int], list[Job]], group: int, rounds: int
) -> tuple[Played, frozenset[EpisodeId]]:
    """All that was played, and the episodes that are left out; none where no group differs.

    ``draw`` gives the jobs of that many tasks more, ``play`` plays them.
    """
    outcomes, faults, seconds = list(first.outcomes), list(first.faults), first.seconds_env
    wanted = len(outcomes) // group
    equal = equal_groups(outcomes, group)
    for _ in range(rounds):
        missing = wanted - (len(outcomes) // group - len(equal))
        if not missing:
            break
        more = play(draw(missing))
        outcomes += more.outcomes
        faults += more.faults
        seconds += more.seconds_env
        equal += equal_groups(more.outcomes, group)
    useless = len(equal) == len(outcomes) // group
    left_out = frozenset() if useless else frozenset(e.job.id for members in equal for e in members)
    return Played(outcomes, faults, seconds), left_out
