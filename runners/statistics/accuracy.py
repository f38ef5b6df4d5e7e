"""Accuracy of numbers that separate right actions from wrong ones, and won states from lost ones.

Invariant: pure functions of arrays; ``weight`` counts how often an entry is there, so that resampled episodes are the
same arrays with other weights. What the data cannot tell (an empty class, no spread) is None, never 0 or 0.5.
"""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
SAME = 1e-12
"""Variances up to this are no spread."""


def auc(score: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None) -> float | None:
    """Chance that a positive has a higher score than a negative, ties counting half; None without one of the two."""
    weight = np.ones(len(score)) if weight is None else weight
    plus, minus = weight * positive, weight * ~positive
    if not plus.sum() or not minus.sum():
        return None
    below, tied = _below(score, minus)
    return float((plus * (below + tied / 2)).sum() / (plus.sum() * minus.sum()))


def auc_within(
    score: Vector, positive: npt.NDArray[np.bool_], episode: npt.NDArray[np.int_], weight: Vector | None = None
) -> float | None:
    """The same over pairs from one episode only: neither the difficulty of a task nor its outcome can help.

    ``weight`` is one per entry, the same for all entries of an episode. None where no episode has a pair.
    """
    weight = np.ones(len(score)) if weight is None else weight
    won = pairs = 0.0
    for mine in _by(episode):
        up, down = score[mine][positive[mine]], score[mine][~positive[mine]]
        if len(up) and len(down):
            gap = up[:, None] - down[None, :]
            won += weight[mine[0]] * float((gap > 0).sum() + (gap == 0).sum() / 2)
            pairs += weight[mine[0]] * gap.size
    return won / pairs if pairs else None


def spearman(x: Vector, y: Vector, weight: Vector | None = None) -> float | None:
    """Pearson's correlation of the ranks, tied entries sharing theirs; None where either has no spread."""
    weight = np.ones(len(x)) if weight is None else weight
    if not weight.sum():
        return None
    ranks = []
    for column in (x, y):
        below, tied = _below(column, weight)
        rank = below + tied / 2
        ranks.append(rank - np.average(rank, weights=weight))
    variances = [float((weight * rank**2).sum()) for rank in ranks]
    if min(variances) <= SAME:
        return None
    return float((weight * ranks[0] * ranks[1]).sum() / np.sqrt(variances[0] * variances[1]))


def explained_variance(value: Vector, target: Vector, weight: Vector | None = None) -> float | None:
    """1 - Var(target - value) / Var(target); None where the targets have no spread."""
    weight = np.ones(len(value)) if weight is None else weight
    if not weight.sum():
        return None
    total, left = (_variance(x, weight) for x in (target, target - value))
    return None if total <= SAME else float(1 - left / total)


def share_of(score: Vector, chosen: npt.NDArray[np.bool_], weight: Vector | None = None) -> float | None:
    """Share of the sum of \\|score\\| that the chosen entries have; None where all scores are 0."""
    size = np.abs(score) * (1 if weight is None else weight)
    return float(size[chosen].sum() / size.sum()) if size.sum() else None


def _variance(x: Vector, weight: Vector) -> float:
    return float(np.average((x - np.average(x, weights=weight)) ** 2, weights=weight))


def _below(x: Vector, weight: Vector) -> tuple[Vector, Vector]:
    """For each entry the weight of the entries below it, and of those equal to it (itself included)."""
    _, place = np.unique(x, return_inverse=True)
    tied = np.bincount(place, weights=weight).astype(np.float64)
    below = np.cumsum(tied) - tied
    return below[place], tied[place]


def _by(group: npt.NDArray[np.int_]) -> list[npt.NDArray[np.int_]]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(group) else []
