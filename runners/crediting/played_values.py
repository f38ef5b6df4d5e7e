"""The truth where no oracle is asked: what the policy itself gets when it plays on from the states of its episodes.

    progress_k = r_k + V(s_{k+1}) - V(s_k)        V: mean return of the continuations, 0 in the last state

A change within two standard errors of the difference is no change.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agents.tree.episode import EpisodeId
from agents.tree.merge import Tree
from runners.training.continuations import Estimate

SURE = 2.0
"""Standard errors of a difference that a change must exceed."""


@dataclass(frozen=True)
class PlayedValues:
    """An episode of n turns, valued by continuations."""

    values: tuple[float | None, ...]
    """Of its n + 1 states; None where fewer than two continuations ended without a fault."""
    errors: tuple[float | None, ...]
    """Their standard errors."""
    progress: tuple[float, ...]
    """How much each action changed what the policy gets; NaN next to a state without a value."""


def played_values(trees: Sequence[Tree], estimates: Sequence[Estimate]) -> dict[EpisodeId, PlayedValues]:
    """The values of every episode of ``trees``, whose states were estimated."""
    of = {id(one.node): one for one in estimates}
    result = {}
    for tree in trees:
        for episode, path in tree.paths:
            mine = [of[id(node)] for node in (tree.root, *(state for _, state in path[:-1]))]
            known = [(e.mean, e.error) if e.mean is not None and e.error is not None else None for e in mine]
            rewards = [action.reward for action, _ in path]
            result[episode.job.id] = _valued(known, rewards)
    return result


def _valued(known: Sequence[tuple[float, float] | None], rewards: Sequence[float]) -> PlayedValues:
    progress = []
    states = [*known, (0.0, 0.0)]
    for (before, after), reward in zip(pairwise(states), rewards, strict=True):
        if before is None or after is None:
            progress.append(math.nan)
            continue
        change = reward + after[0] - before[0]
        progress.append(change if abs(change) > SURE * math.hypot(before[1], after[1]) else 0.0)
    values, errors = (tuple(None if one is None else one[i] for one in states) for i in (0, 1))
    return PlayedValues(values, errors, tuple(progress))


def mean_error(of_policy: Mapping[str, float | None]) -> str:
    """The standard errors of the values, by policy, in words."""
    return ", ".join(f"{name} {'unknown' if error is None else f'{error:.3f}'}" for name, error in of_policy.items())
