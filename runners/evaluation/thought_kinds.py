"""Statistics per kind of thought: its share, the change of the critic's value over it, and the success of the episodes
that contain it.

Invariant: intervals resample whole tasks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from agents.tree.episode import Episode
from runners.reporting.tables import cell, show_table
from runners.statistics.intervals import Interval, percentile, task_draws

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
    rows: list[tuple[int, str, float, float, int]] = []
    tasks: dict[str, int] = {}
    for number, episode in enumerate(episodes):
        task = tasks.setdefault(episode.job.task.id, len(tasks))
        for k, ((action, state), (text, _)) in enumerate(zip(episode.turns, episode.texts, strict=True)):
            change = np.nan
            if values is not None:
                after = 0.0 if state.terminated else values[number][k + 1]
                change = action.reward + after - values[number][k]
            rows.append((task, kind(text) or OTHER, change, float(bool(episode.success)), number))
    if not rows:
        return {}
    task_X = np.asarray([row[0] for row in rows])
    kind_X = np.asarray([str(row[1]) for row in rows])
    change_X, success_X = (np.asarray([row[i] for row in rows], dtype=np.float64) for i in (2, 3))
    episode_X = np.asarray([row[4] for row in rows])
    rng = np.random.default_rng(0)
    drawn = [weight[task_X] for weight in task_draws(len(tasks), draws, rng)]
    result: dict[str, dict[str, Any]] = {}
    for name in sorted(set(kind_X), key=lambda n: -int((kind_X == n).sum())):
        mine = kind_X == name
        _, first = np.unique(np.where(mine, episode_X, -1), return_index=True)
        once = np.zeros(len(rows), dtype=bool)  # each episode that has one, once
        once[first] = True
        result[name] = {
            "turns": int(mine.sum()),
            "share": _mean(mine.astype(np.float64), np.ones(len(rows), dtype=bool), drawn),
            "change": None if values is None else _mean(change_X, mine, drawn),
            "success": _mean(success_X, once & mine, drawn),
        }
    return result


def _mean(x: np.ndarray, chosen: np.ndarray, drawn: Sequence[np.ndarray]) -> Interval:
    means = [np.average(x[chosen], weights=w[chosen]) for w in drawn if w[chosen].sum()]
    return percentile(float(x[chosen].mean()), means or [np.nan])


def show(result: dict[str, dict[str, Any]], console: Console) -> None:
    """The table that a person reads."""
    rows = [[name, str(row["turns"]), *(cell(row[key]) for key in TITLES)] for name, row in result.items()]
    title = "kinds of thoughts, sampled episodes, 95 % intervals over tasks"
    show_table(title, ["kind", "turns", *TITLES.values()], rows, console)
