"""Calibration of a critic's values: ranking (AUC), probability (Brier, reliability), and per turn.

Invariant: every figure stands beside that of a predictor which knows only the turn's number and the task's level and
language; it learns from one half of the tasks, and both are measured on the other half. Intervals resample whole tasks.
A value is read as a chance of success, cut to 0..1: that is what it is where the reward is 1 for success and 0 else.

Legend of the shape suffixes: X states in which an action was taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.tree.episode import Episode
from runners.statistics.accuracy import Vector, auc
from runners.statistics.intervals import Interval, percentile, task_draws

BINS = 10
"""Of the reliability table, equally wide."""
SMOOTH = 5.0
"""Episodes of the mean success that are added to what the predictor saw of a turn and a level."""
LEAST = 30
"""Fewest states of a turn that is told of."""
Weights = Vector
Figure = Callable[[Weights], float | None]


@dataclass(frozen=True)
class States:
    """The states of some episodes in which an action was taken."""

    episode: npt.NDArray[np.int_]
    task: npt.NDArray[np.int_]
    turn: npt.NDArray[np.int_]
    turns: npt.NDArray[np.int_]
    """How many its episode has."""
    group: npt.NDArray[np.int_]
    """Level and language of the task, as one number."""
    value: Vector
    success: Vector
    oracle: Vector
    """The environment's chance of success; NaN where it has none."""

    def where(self, chosen: npt.NDArray[np.bool_]) -> States:
        return States(**{name: x[chosen] for name, x in vars(self).items()})

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


@dataclass(frozen=True)
class Passed:
    """What is known of an episode of n turns."""

    task: str
    group: tuple[int, str]
    """Level and language of the task."""
    success: bool
    values: Sequence[float]
    """V of each of the n + 1 states, or of the first n."""
    oracle: Sequence[float | None]
    """The environment's chance of success in the same states."""
    turns: int


def states_of(episodes: Sequence[Episode], values: Sequence[Sequence[float]]) -> States:
    """``values``: V of every state of each episode. The last states, in which nothing was done, are left out."""
    return states_passed(
        [
            Passed(
                e.job.task.id,
                (e.job.task.level, e.job.task.language),
                bool(e.success),
                value,
                [e.root.oracle, *(state.oracle for _, state in e.turns)],
                len(e.turns),
            )
            for e, value in zip(episodes, values, strict=True)
        ]
    )


def states_passed(episodes: Sequence[Passed]) -> States:
    """The states of ``episodes`` in which an action was taken."""
    tasks: dict[str, int] = {}
    groups: dict[tuple[int, str], int] = {}
    columns: list[tuple[float, ...]] = []
    for number, e in enumerate(episodes):
        shared = (
            number,
            tasks.setdefault(e.task, len(tasks)),
            groups.setdefault(e.group, len(groups)),
            e.turns,
            float(e.success),
        )
        columns += [
            (*shared, k, e.values[k], np.nan if (known := e.oracle[k]) is None else known) for k in range(e.turns)
        ]
    table = np.asarray(columns, dtype=np.float64).reshape(-1, 8).T
    episode_X, task_X, group_X, turns_X, turn_X = (table[i].astype(np.int_) for i in (0, 1, 2, 3, 5))
    return States(episode_X, task_X, turn_X, turns_X, group_X, table[6], table[4], table[7])


def predictor(learn: States, tell: States, target: Callable[[States], Vector]) -> Vector:
    """chance_X of the states to tell of, by the mean over the states to learn from of the same turn and group.

    Smoothed towards the mean of the turn, and that towards the mean of all.
    """
    y = target(learn)
    whole = float(y.mean()) if len(y) else 0.5
    sums: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for turn, group, one in zip(learn.turn.tolist(), learn.group.tolist(), y.tolist(), strict=True):
        for key in ((turn,), (turn, group)):
            sums[key][0] += one
            sums[key][1] += 1

    def chance(turn: int, group: int) -> float:
        result = whole
        for key in ((turn,), (turn, group)):
            total, count = sums.get(key, (0.0, 0.0))
            result = (total + SMOOTH * result) / (count + SMOOTH)
        return result

    pairs = zip(tell.turn.tolist(), tell.group.tolist(), strict=True)
    return np.asarray([chance(turn, group) for turn, group in pairs], dtype=np.float64)


def success(states: States) -> Vector:
    return states.success


def solvable(states: States) -> Vector:
    return (states.oracle > 0).astype(np.float64)


def brier(chance: Vector, outcome: Vector, weight: Weights) -> float | None:
    """Mean squared distance of a chance from what happened (1 or 0)."""
    return float(np.average((chance - outcome) ** 2, weights=weight)) if weight.sum() else None


def calibration(states: States, *, seed: int = 0, draws: int = 400) -> dict[str, Any]:
    """Figures with intervals, the reliability table, and a row per turn; what cannot be told is None."""
    if not len(states.turn):
        return {}
    tasks = int(states.task.max()) + 1
    rng = np.random.default_rng(seed)
    learns = np.zeros(tasks, dtype=bool)
    learns[rng.permutation(tasks)[: tasks // 2]] = True
    learn, tell = states.where(learns[states.task]), states.where(~learns[states.task])
    beside = predictor(learn, tell, success)
    value, won = np.clip(tell.value, 0, 1), tell.success > 0
    figures: dict[str, tuple[States, Figure]] = {
        "auc": (tell, lambda w: auc(tell.value, won, w)),
        **_against("middle", learn.where(learn.middle), tell.where(tell.middle)),
        **_against("half", learn.where(learn.half), tell.where(tell.half)),
        "brier": (tell, lambda w: brier(value, tell.success, w)),
        "brier_predictor": (tell, lambda w: brier(beside, tell.success, w)),
    }
    if not np.isnan(states.oracle).any():
        still, guessed = tell.oracle > 0, predictor(learn, tell, solvable)
        figures["auc_solvable"] = tell, lambda w: auc(tell.value, still, w)
        figures["auc_solvable_predictor"] = tell, lambda w: auc(guessed, still, w)
        figures["auc_oracle"] = tell, lambda w: auc(tell.oracle, won, w)
    drawn = task_draws(tasks, draws, rng)
    count = {
        "episodes": len(np.unique(tell.episode)),
        "succeeded": len(np.unique(tell.episode[won])),
        "tasks": len(np.unique(tell.task)),
        "states": len(tell.turn),
    }
    return {
        "counts": count,
        "figures": {name: _interval(figure, of.task, drawn) for name, (of, figure) in figures.items()},
        "reliability": reliability(value, tell.success),
        "by_turn": by_turn(tell),
    }


def _against(name: str, learn: States, tell: States) -> dict[str, tuple[States, Figure]]:
    """V against the predictor, on the states to tell of."""
    beside, won = predictor(learn, tell, success), tell.success > 0
    return {
        f"auc_{name}": (tell, lambda w: auc(tell.value, won, w)),
        f"auc_{name}_predictor": (tell, lambda w: auc(beside, won, w)),
        f"auc_{name}_gain": (tell, lambda w: _less(tell.value, beside, won, w)),
    }


def _less(value: Vector, beside: Vector, positive: npt.NDArray[np.bool_], weight: Weights) -> float | None:
    mine, other = auc(value, positive, weight), auc(beside, positive, weight)
    return None if mine is None or other is None else mine - other


def _interval(figure: Figure, task: npt.NDArray[np.int_], drawn: Sequence[Vector]) -> Interval | None:
    mean = figure(np.ones(len(task)))
    result = [x for weight in drawn if (x := figure(weight[task])) is not None]
    if mean is None or not result:
        return None
    return percentile(mean, result)


def reliability(chance: Vector, outcome: Vector) -> list[dict[str, float]]:
    """For each tenth of the chances that occurs: the states in it, their mean chance, and the share that succeeded."""
    place = np.minimum((chance * BINS).astype(np.int_), BINS - 1)
    return [
        {
            "states": float((place == b).sum()),
            "value": float(chance[place == b].mean()),
            "success": float(outcome[place == b].mean()),
        }
        for b in range(BINS)
        if (place == b).any()
    ]


def by_turn(states: States) -> list[dict[str, Any]]:
    """Each turn that at least ``LEAST`` episodes reached."""
    rows: list[dict[str, Any]] = []
    for turn in range(int(states.turn.max()) + 1 if len(states.turn) else 0):
        mine = states.where(states.turn == turn)
        if len(mine.turn) < LEAST:
            break
        ones = np.ones(len(mine.turn))
        chance = np.clip(mine.value, 0, 1)
        rows.append(
            {
                "turn": turn,
                "states": len(mine.turn),
                "value": float(mine.value.mean()),
                "success": float(mine.success.mean()),
                "auc": auc(mine.value, mine.success > 0),
                "brier": brier(chance, mine.success, ones),
                "reliability": reliability(chance, mine.success),
            }
        )
    return rows
