"""Quality of an algorithm's credit and of its critic, on episodes whose true progress is known: by the environment's
oracle, or by what the policy gets when it plays on.

Invariant: every figure is taken over the same turns for every algorithm; intervals resample whole tasks, because the
episodes of a group are credited together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from agents.tree.episode import Episode, EpisodeId
from runners.crediting.played_values import PlayedValues
from runners.statistics.accuracy import Vector, auc, auc_within, explained_variance, share_of, spearman
from runners.statistics.intervals import Interval, over_tasks, task_draws
from runners.statistics.turns import Passed, Turns, turns_of
from runners.training.credited import Credited

WHEN = ("base", "trained")
TITLES = {
    "auc": "AUC of the advantage",
    "auc_within": "… within episodes",
    "rank": "rank correlation",
    "irrelevant": "irrelevant actions' share",
    "ev": "explained variance of V",
    "ev_oracle": "… of the exact value",
    "value_success": "AUC of V: success",
    "value_solvable": "AUC of V: still solvable",
    "value_rank": "rank correlation of V",
}
ABOUT = {
    "auc": "advantages of actions after which the oracle's value rises, against those after which it falls",
    "auc_within": "the same over pairs of actions of one episode, so that task difficulty does not help",
    "rank": "Spearman's, of the advantage with the change of the oracle's value, irrelevant actions included",
    "irrelevant": "share of the sum of all |advantages| that goes to actions which change nothing",
    "ev": "of the return by V, over the states in which an action was taken",
    "ev_oracle": "of success by the oracle's value: what an exact critic of that agent reaches",
    "value_success": "V in states of successful episodes against V in the others",
    "value_solvable": "V in states that the oracle still values above 0 against V in lost ones",
    "value_rank": "Spearman's, of V with the oracle's value",
}
ABOUT_PLAYED = {
    "auc": "advantages of actions that surely raise what the policy gets, against those that surely lower it",
    "auc_within": ABOUT["auc_within"],
    "rank": "Spearman's, of the advantage with the change of the played value, 0 where it is not sure",
    "irrelevant": "share of the sum of all |advantages| that goes to actions whose change is not sure",
    "ev": ABOUT["ev"],
    "ev_oracle": "of the return by the played value, whose own error lowers it",
    "value_success": ABOUT["value_success"],
    "value_solvable": "V in states from which a continuation had a return above 0 against V in the others",
    "value_rank": "Spearman's, of V with the played value",
}
"""The same where the truth is played (`PlayedValues`)."""


def credited_turns(
    episodes: Sequence[Episode],
    credited: Mapping[EpisodeId, Credited],
    played: Mapping[EpisodeId, PlayedValues] | None = None,
) -> Turns:
    """The turns of ``episodes`` that were credited, whose every state has a true value, and none lost its own.

    The truth is the oracle's, or ``played``.
    """
    there = [e for e in episodes if e.turns and e.job.id in credited]
    passed = [Passed.of(e, credited[e.job.id].values, credited[e.job.id].advantages) for e in there]
    if played is not None:
        known = (played[e.job.id] for e in there)
        passed = [replace(p, oracle=k.values, progress=k.progress) for p, k in zip(passed, known, strict=True)]
    return turns_of(one for one in passed if None not in one.oracle and None not in (one.values or ())[:-1])


Figure = Callable[[Turns, Vector], float | None]
"""Of turns, each with a weight."""


def _of_moves(figure: Figure) -> Figure:
    """A figure over the actions that changed the oracle's value."""

    def found(turns: Turns, weight: Vector) -> float | None:
        moved = turns.progress != 0
        return figure(turns.where(moved), weight[moved])

    return found


FIGURES: dict[str, Figure] = {
    "auc": _of_moves(lambda t, w: auc(t.advantage, t.progress > 0, w)),
    "auc_within": _of_moves(lambda t, w: auc_within(t.advantage, t.progress > 0, t.episode, w)),
    "rank": lambda t, w: spearman(t.advantage, t.progress, w),
    "irrelevant": lambda t, w: share_of(t.advantage, t.progress == 0, w),
    "ev": lambda t, w: explained_variance(t.value, t.returns, w),
    "ev_oracle": lambda t, w: explained_variance(t.oracle, t.target, w),
    "value_success": lambda t, w: auc(t.value, t.success > 0, w),
    "value_solvable": lambda t, w: auc(t.value, t.oracle > 0, w),
    "value_rank": lambda t, w: spearman(t.value, t.oracle, w),
}
CRITIC = ("ev", "value_success", "value_solvable", "value_rank")
"""What only an algorithm with a critic has."""


def can_tell(turns: Turns, key: str) -> bool:
    """Whether the algorithm has what the figure needs."""
    needed = turns.oracle if key == "ev_oracle" else turns.value if key in CRITIC else turns.advantage
    return len(turns) > 0 and not np.isnan(needed).any()


def quality(turns: Turns, *, seed: int = 0, draws: int = 400) -> dict[str, Interval | None]:
    """Every figure with its 95 % percentile interval over resampled tasks; None where it cannot be told."""
    tasks = int(turns.task.max()) + 1 if len(turns) else 0
    drawn = task_draws(tasks, draws if tasks else 0, np.random.default_rng(seed))
    return {
        key: over_tasks(partial(figure, turns), turns.task, drawn) if can_tell(turns, key) else None
        for key, figure in FIGURES.items()
    }


def counts(turns: Turns) -> dict[str, float]:
    """How many episodes and turns there were, and what the actions did."""
    n = max(1, len(turns))
    return {
        "episodes": float(len(np.unique(turns.episode))),
        "tasks": float(len(np.unique(turns.task))),
        "turns": float(len(turns)),
        "success": float(np.mean([turns.success[turns.episode == e][0] for e in np.unique(turns.episode)] or [np.nan])),
        "progress": float((turns.progress > 0).sum() / n),
        "setbacks": float((turns.progress < 0).sum() / n),
        "irrelevant": float((turns.progress == 0).sum() / n),
    }


def by_turn(turns: Turns) -> list[dict[str, float | None]]:
    """Critic and credit at each turn that enough episodes reached."""
    told = ("auc", "ev", "ev_oracle", "value_success", "value_solvable")
    rows: list[dict[str, float | None]] = []
    for k, mine in turns.by_turn():
        row = {"turn": float(k), "states": float(len(mine)), "oracle": float(mine.oracle.mean())}
        value = {"value": float(mine.value.mean()) if can_tell(turns, "ev") else None}
        ones = np.ones(len(mine))
        rows.append(row | value | {key: FIGURES[key](mine, ones) if can_tell(turns, key) else None for key in told})
    return rows
