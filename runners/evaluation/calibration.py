"""Calibration of a critic's values: ranking (AUC), probability (Brier, reliability), and per turn.

Invariant: every figure stands beside that of a predictor which knows only the turn's number and the task's level and
language; it learns from one half of the tasks, and both are measured on the other half. Intervals resample whole tasks.
A value is read as a chance of success, cut to 0..1: that is what it is where the reward is 1 for success and 0 else.

Legend of the shape suffixes: X states in which an action was taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from runners.statistics.accuracy import Vector, auc
from runners.statistics.intervals import over_tasks, task_draws
from runners.statistics.turns import Turns

BINS = 10
"""Of the reliability table, equally wide."""
SMOOTH = 5.0
"""Episodes of the mean success that are added to what the predictor saw of a turn and a level."""
Weights = Vector
Figure = Callable[[Weights], float | None]


def predictor(learn: Turns, tell: Turns, target: Vector) -> Vector:
    """chance_X of the states to tell of, by the mean ``target`` of the states to learn from of the same turn and group.

    Smoothed towards the mean of the turn, and that towards the mean of all.
    """
    whole = float(target.mean()) if len(target) else 0.5
    sums: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for turn, group, one in zip(learn.turn.tolist(), learn.group.tolist(), target.tolist(), strict=True):
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


def brier(chance: Vector, outcome: Vector, weight: Weights) -> float | None:
    """Mean squared distance of a chance from what happened (1 or 0)."""
    return float(np.average((chance - outcome) ** 2, weights=weight)) if weight.sum() else None


def calibration(states: Turns, *, seed: int = 0, draws: int = 400) -> dict[str, Any]:
    """Figures with intervals, the reliability table, and a row per turn; what cannot be told is None."""
    if not len(states):
        return {}
    tasks = int(states.task.max()) + 1
    rng = np.random.default_rng(seed)
    learns = np.zeros(tasks, dtype=bool)
    learns[rng.permutation(tasks)[: tasks // 2]] = True
    learn, tell = states.where(learns[states.task]), states.where(~learns[states.task])
    beside = predictor(learn, tell, learn.success)
    value, won = np.clip(tell.value, 0, 1), tell.success > 0
    figures: dict[str, tuple[Turns, Figure]] = {
        "auc": (tell, lambda w: auc(tell.value, won, w)),
        **_against("middle", learn.where(learn.middle), tell.where(tell.middle)),
        **_against("half", learn.where(learn.half), tell.where(tell.half)),
        "brier": (tell, lambda w: brier(value, tell.success, w)),
        "brier_predictor": (tell, lambda w: brier(beside, tell.success, w)),
    }
    if not np.isnan(states.oracle).any():
        still, guessed = tell.oracle > 0, predictor(learn, tell, (learn.oracle > 0).astype(np.float64))
        figures["auc_solvable"] = tell, lambda w: auc(tell.value, still, w)
        figures["auc_solvable_predictor"] = tell, lambda w: auc(guessed, still, w)
        figures["auc_oracle"] = tell, lambda w: auc(tell.oracle, won, w)
    drawn = task_draws(tasks, draws, rng)
    count = {
        "episodes": len(np.unique(tell.episode)),
        "succeeded": len(np.unique(tell.episode[won])),
        "tasks": len(np.unique(tell.task)),
        "states": len(tell),
    }
    return {
        "counts": count,
        "figures": {name: over_tasks(figure, of.task, drawn) for name, (of, figure) in figures.items()},
        "reliability": reliability(value, tell.success),
        "by_turn": by_turn(tell),
    }


def _against(name: str, learn: Turns, tell: Turns) -> dict[str, tuple[Turns, Figure]]:
    """V against the predictor, on the states to tell of."""
    beside, won = predictor(learn, tell, learn.success), tell.success > 0
    return {
        f"auc_{name}": (tell, lambda w: auc(tell.value, won, w)),
        f"auc_{name}_predictor": (tell, lambda w: auc(beside, won, w)),
        f"auc_{name}_gain": (tell, lambda w: _less(tell.value, beside, won, w)),
    }


def _less(value: Vector, beside: Vector, positive: npt.NDArray[np.bool_], weight: Weights) -> float | None:
    mine, other = auc(value, positive, weight), auc(beside, positive, weight)
    return None if mine is None or other is None else mine - other


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


def by_turn(states: Turns) -> list[dict[str, Any]]:
    """A row for each turn that enough episodes reached."""
    return [
        {
            "turn": turn,
            "states": len(mine),
            "value": float(mine.value.mean()),
            "success": float(mine.success.mean()),
            "auc": auc(mine.value, mine.success > 0),
            "brier": brier(np.clip(mine.value, 0, 1), mine.success, np.ones(len(mine))),
            "reliability": reliability(np.clip(mine.value, 0, 1), mine.success),
        }
        for turn, mine in states.by_turn()
    ]
