"""Turns of episodes as columns: figures of a critic and of credit are functions of arrays.

Invariant: one entry per turn; the state of a turn is the one in which it was taken. What is not known is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agents.tree.episode import Episode
from agents.tree.tree import ROUNDING
from runners.statistics.accuracy import Vector

LEAST = 30
"""Fewest episodes that must reach a place in the episode for it to be reported."""

FIRST_TOKENS = (10, 20, 50)
"""Numbers of first tokens of a turn whose entropy is averaged."""


@dataclass(frozen=True)
class Passed:
    """What is known of an episode of n turns and n + 1 states."""

    task: str
    group: tuple[int, str]
    """Level and language of the task."""
    success: bool
    values: Sequence[float | None] | None
    """V of each state; the last one is not read, and the others are known."""
    oracle: Sequence[float | None]
    """The environment's chance of success in each state, or what the policy gets from there on."""
    turns: int
    rewards: Sequence[float] = ()
    advantages: Sequence[float] | None = None
    progress: Sequence[float] | None = None
    """How much each action changed what the policy gets; None where ``oracle`` is the environment's."""

    @classmethod
    def of(
        cls, episode: Episode, values: Sequence[float | None] | None = None, advantages: Sequence[float] | None = None
    ) -> Passed:
        """With the environment's oracle."""
        task = episode.job.task
        oracle = [episode.root.oracle, *(state.oracle for _, state in episode.turns)]
        rewards = [action.reward for action, _ in episode.turns]
        success = bool(episode.success)
        return cls(task.id, (task.level, task.language), success, values, oracle, len(rewards), rewards, advantages)


@dataclass(frozen=True)
class Turns:
    """All turns of some episodes."""

    episode: npt.NDArray[np.int_]
    task: npt.NDArray[np.int_]
    turn: npt.NDArray[np.int_]
    """Place in the episode, from 0."""
    turns: npt.NDArray[np.int_]
    """How many its episode has."""
    group: npt.NDArray[np.int_]
    """Level and language of the task, as one number."""
    value: Vector
    success: Vector
    """1 where the episode succeeded."""
    oracle: Vector
    """The environment's chance of success in the state, or what the policy gets from there on."""
    target: Vector
    """What ``oracle`` predicts: success, or the return from this turn on."""
    progress: Vector
    """How much the action changed ``oracle``, rewards included; exactly 0 for an irrelevant one."""
    returns: Vector
    """Sum of the rewards from this turn on."""
    advantage: Vector

    def __len__(self) -> int:
        return len(self.turn)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Turns:
        return Turns(**{name: x[chosen] for name, x in vars(self).items()})

    def by_turn(self) -> Iterator[tuple[int, Turns]]:
        """The turns at each place in the episode that at least `LEAST` episodes reached."""
        for k in range(int(self.turn.max()) + 1 if len(self) else 0):
            mine = self.where(self.turn == k)
            if len(mine) < LEAST:
                return
            yield k, mine

    @property
    def half(self) -> npt.NDArray[np.bool_]:
        """The state of each episode after half of its turns, rounded down.

        Which turn that is tells how long the episode is going to be, and so, often, how it ends: a predictor that knows
        the turn's number knows more here than anybody could.
        """
        return self.turn == self.turns // 2

    @property
    def middle(self) -> npt.NDArray[np.bool_]:
        """The state after half of the median number of turns, of the episodes that last so long."""
        last = self.turns[self.turn == 0]
        return self.turn == (int(np.median(last)) // 2 if len(last) else 0)


def turns_of(episodes: Iterable[Passed]) -> Turns:
    """The turns of ``episodes``; tasks and groups are numbered in the order in which they come."""
    tasks: dict[str, int] = {}
    groups: dict[tuple[int, str], int] = {}
    rows: list[tuple[float, ...]] = []
    for number, e in enumerate(episodes):
        task, group = tasks.setdefault(e.task, len(tasks)), groups.setdefault(e.group, len(groups))
        oracle = [np.nan if chance is None else chance for chance in e.oracle]
        values = [np.nan if value is None else value for value in e.values or [None] * e.turns]
        for k in range(e.turns):
            value, advantage = values[k], np.nan if e.advantages is None else e.advantages[k]
            change, success, returns = oracle[k + 1] - oracle[k], float(e.success), sum(e.rewards[k:])
            if e.progress is None:
                target, progress = success, 0.0 if abs(change) < ROUNDING else change
            else:
                target, progress = returns, e.progress[k]
            known = (value, success, oracle[k], target, progress, returns, advantage)
            rows.append((number, task, k, e.turns, group, *known))
    table = np.asarray(rows, dtype=np.float64).reshape(-1, 12).T
    return Turns(*(column.astype(np.int_) for column in table[:5]), *table[5:])
