"""Statistics per kind of thought: its share, the change of the critic's value over it, and the success of the episodes
that contain it.

Invariant: intervals resample whole tasks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from agents.tree.episode import Episode
from runners.reporting.tables import cell, show_table
from runners.statistics.accuracy import Vector
from runners.statistics.intervals import Interval, over_tasks, task_draws
from runners.statistics.turns import Passed, turns_of

KindOf = Callable[[str], str | None]
OTHER = "other"
"""A turn of no kind: it just works on, or answers."""
TITLES = {"share": "share of turns", "change": "change of V", "success": "success of episodes with it"}


def by_kind(
    episodes: Sequence[Episode], values: Sequence[Sequence[float]] | None, kind: KindOf, draws: int = 400
) -> dict[str, dict[str, Any]]:
    """{kind: {"turns", "share", "change", "success"}}, the last three with intervals; no change without values.

    The change over a turn is r + V(s') - V(s), with V = 0 after the end of an episode that the environment ended.
    """
    turns = turns_of(map(Passed.of, episodes))
    kind_X = np.asarray([kind(text) or OTHER for episode in episodes for text, _ in episode.texts])
    change_X = np.asarray([
        action.reward + (0.0 if state.terminated else v[k + 1]) - v[k]
        for episode, v in zip(episodes, values or (), strict=values is not None)
        for k, (action, state) in enumerate(episode.turns)
    ])  # fmt: skip
    drawn = task_draws(len(np.unique(turns.task)), draws if len(turns) else 0, np.random.default_rng(0))

    def mean(x: Vector, chosen: npt.NDArray[np.bool_]) -> Interval | None:
        def weighted(weight: Vector) -> float | None:
            return float(np.average(x[chosen], weights=weight[chosen])) if weight[chosen].sum() else None

        return over_tasks(weighted, turns.task, drawn)

    result: dict[str, dict[str, Any]] = {}
    for name in sorted(dict.fromkeys(kind_X), key=lambda n: -int((kind_X == n).sum())):
        mine = kind_X == name
        _, first = np.unique(np.where(mine, turns.episode, -1), return_index=True)
        once = np.zeros(len(turns), dtype=bool)  # each episode that has one, once
        once[first] = True
        result[name] = {
            "turns": int(mine.sum()),
            "share": mean(mine.astype(np.float64), np.ones(len(turns), dtype=bool)),
            "change": None if values is None else mean(change_X, mine),
            "success": mean(turns.success, once & mine),
        }
    return result


def show(result: dict[str, dict[str, Any]], console: Console) -> None:
    """The table that a person reads."""
    rows = [[name, str(row["turns"]), *(cell(row[key]) for key in TITLES)] for name, row in result.items()]
    title = "kinds of thoughts, sampled episodes, 95 % intervals over tasks"
    show_table(title, ["kind", "turns", *TITLES.values()], rows, console)
