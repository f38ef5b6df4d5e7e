"""Quality of an algorithm's credit and of its critic, on episodes whose true progress is known.

Invariant: every figure is taken over the same turns for every algorithm; intervals resample whole tasks, because the
episodes of a group are credited together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.tree.episode import Episode, EpisodeId
from agents.tree.tree import ROUNDING
from runners.statistics.accuracy import Vector, auc, auc_within, explained_variance, share_of, spearman
from runners.statistics.intervals import Interval, percentile, task_draws
from runners.training.learner import Credited

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
CRITIC = ("ev", "value_success", "value_solvable", "value_rank")
"""What only an algorithm with a critic has."""


@dataclass(frozen=True)
class Turns:
    """All turns of some episodes, one entry per turn; a state is that in which the turn was taken."""

    episode: npt.NDArray[np.int_]
    task: npt.NDArray[np.int_]
    turn: npt.NDArray[np.int_]
    """Place in the episode, from 0."""
    oracle: Vector
    """The oracle's value of the state."""
    progress: Vector
    """How much the action changed it; exactly 0 for an irrelevant one."""
    returns: Vector
    """Sum of the rewards from this turn on."""
    success: Vector
    """1 where the episode succeeded."""
    advantage: Vector | None = None
    value: Vector | None = None

    def where(self, chosen: npt.NDArray[np.bool_]) -> Turns:
        columns: dict[str, Any] = {name: None if x is None else x[chosen] for name, x in vars(self).items()}
        return Turns(**columns)


def turns_of(episodes: Sequence[Episode], credited: Mapping[EpisodeId, Credited]) -> Turns:
    """The turns of ``episodes`` that were credited and whose every state the oracle knew."""
    columns: list[tuple[float, ...]] = []
    tasks: dict[str, int] = {}
    kept = [e for e in episodes if e.turns and e.job.id in credited and _known(e)]
    for number, episode in enumerate(kept):
        credit = credited[episode.job.id]
        states = [episode.root, *(state for _, state in episode.turns)]
        oracle = [float(state.oracle or 0.0) for state in states]
        rewards = [action.reward for action, _ in episode.turns]
        for k in range(len(rewards)):
            change = oracle[k + 1] - oracle[k]
            columns.append((
                number, tasks.setdefault(episode.job.task.id, len(tasks)), k, oracle[k],
                0.0 if abs(change) < ROUNDING else change, sum(rewards[k:]), float(bool(episode.success)),
                np.nan if credit.advantages is None else credit.advantages[k],
                np.nan if credit.values is None else credit.values[k],
            ))  # fmt: skip
    table = np.asarray(columns, dtype=np.float64).reshape(-1, 9).T
    places = [table[i].astype(np.int_) for i in range(3)]
    known = [None if np.isnan(x).any() or not len(x) else x for x in table[7:]]
    return Turns(*places, *table[3:7], *known)


def _known(episode: Episode) -> bool:
    return all(state.oracle is not None for state in (episode.root, *(state for _, state in episode.turns)))


Weights = Vector | None
Figure = Callable[[Turns, Weights], float | None]


def _rated(turns: Turns, weight: Weights) -> tuple[Vector, npt.NDArray[np.bool_], npt.NDArray[np.bool_], Weights]:
    assert turns.advantage is not None
    moved = turns.progress != 0
    return turns.advantage[moved], turns.progress[moved] > 0, moved, None if weight is None else weight[moved]


def _auc(turns: Turns, weight: Weights) -> float | None:
    score, rises, _, kept = _rated(turns, weight)
    return auc(score, rises, kept)


def _auc_within(turns: Turns, weight: Weights) -> float | None:
    score, rises, moved, kept = _rated(turns, weight)
    return auc_within(score, rises, turns.episode[moved], kept)


def _of_value(figure: Callable[[Vector, Turns, Weights], float | None]) -> Figure:
    def found(turns: Turns, weight: Weights) -> float | None:
        assert turns.value is not None
        return figure(turns.value, turns, weight)

    return found


def _of_advantage(figure: Callable[[Vector, Turns, Weights], float | None]) -> Figure:
    def found(turns: Turns, weight: Weights) -> float | None:
        assert turns.advantage is not None
        return figure(turns.advantage, turns, weight)

    return found


WHEN = ("base", "trained")
FIGURES: dict[str, Figure] = {
    "auc": _auc,
    "auc_within": _auc_within,
    "rank": _of_advantage(lambda x, t, w: spearman(x, t.progress, w)),
    "irrelevant": _of_advantage(lambda x, t, w: share_of(x, t.progress == 0, w)),
    "ev": _of_value(lambda v, t, w: explained_variance(v, t.returns, w)),
    "ev_oracle": lambda t, w: explained_variance(t.oracle, t.success, w),
    "value_success": _of_value(lambda v, t, w: auc(v, t.success > 0, w)),
    "value_solvable": _of_value(lambda v, t, w: auc(v, t.oracle > 0, w)),
    "value_rank": _of_value(lambda v, t, w: spearman(v, t.oracle, w)),
}


def can_tell(turns: Turns, key: str) -> bool:
    """Whether the algorithm has what the figure needs."""
    if key in CRITIC:
        return turns.value is not None
    return key == "ev_oracle" or turns.advantage is not None


def quality(turns: Turns, *, seed: int = 0, draws: int = 400) -> dict[str, Interval | None]:
    """Every figure with its 95 % percentile interval over resampled tasks; None where it cannot be told."""
    known = {key: FIGURES[key](turns, None) if can_tell(turns, key) else None for key in FIGURES}
    tasks = int(turns.task.max()) + 1 if len(turns.task) else 0
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {key: [] for key, value in known.items() if value is not None}
    for weight in task_draws(tasks, draws if drawn else 0, rng):
        for key, values in drawn.items():
            if (value := FIGURES[key](turns, weight[turns.task])) is not None:
                values.append(value)
    return {
        key: None if value is None or not drawn[key] else percentile(value, drawn[key]) for key, value in known.items()
    }


def counts(turns: Turns) -> dict[str, float]:
    """How many episodes and turns there were, and what the actions did."""
    n = max(1, len(turns.turn))
    return {
        "episodes": float(len(np.unique(turns.episode))),
        "tasks": float(len(np.unique(turns.task))),
        "turns": float(len(turns.turn)),
        "success": float(np.mean([turns.success[turns.episode == e][0] for e in np.unique(turns.episode)] or [np.nan])),
        "progress": float((turns.progress > 0).sum() / n),
        "setbacks": float((turns.progress < 0).sum() / n),
        "irrelevant": float((turns.progress == 0).sum() / n),
    }


def by_turn(turns: Turns, least: int = 30) -> list[dict[str, float | None]]:
    """Critic and credit at each turn that at least ``least`` episodes reached."""
    rows: list[dict[str, float | None]] = []
    for k in range(int(turns.turn.max()) + 1 if len(turns.turn) else 0):
        mine = turns.where(turns.turn == k)
        if len(mine.turn) < least:
            break
        row: dict[str, float | None] = {
            "turn": float(k),
            "states": float(len(mine.turn)),
            "oracle": float(mine.oracle.mean()),
            "value": None if mine.value is None else float(mine.value.mean()),
        }
        for key in ("auc", "ev", "ev_oracle", "value_success", "value_solvable"):
            row[key] = FIGURES[key](mine, None) if can_tell(mine, key) else None
        rows.append(row)
    return rows
