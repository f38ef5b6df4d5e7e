"""The chains of a row of token trees: from a root (or a fork) always on into the deepest branch.

Every row is in one chain, and the rows of a chain follow one another in depth: each is the parent of the next.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def chains_of(pos: Rows, end: Rows) -> list[Rows]:
    """The rows of each chain, in the order of their first rows."""
    # A run is a stretch of rows without a fork; the deepest row below it names the chain that it belongs to.
    first = np.flatnonzero(np.concatenate([[True], (np.diff(pos) != 1) | (np.diff(end) != 0)]))
    chains: dict[int, list[Rows]] = {}
    for a, b in zip(first.tolist(), [*first[1:].tolist(), pos.size], strict=True):
        tip = a + int(pos[a : end[a]].argmax())
        chains.setdefault(tip, []).append(np.arange(a, b))
    return [np.concatenate(runs) for runs in chains.values()]


def paths_of(chains: list[Rows], pos: Rows, end: Rows) -> list[Rows]:
    """Each chain with all its ancestors before it: entry d is the row at depth d."""
    roots = np.flatnonzero(pos == 0)
    paths = []
    for chain in chains:
        head = int(chain[0])
        root = int(roots[np.searchsorted(roots, head, side="right") - 1])
        paths.append(np.concatenate([root + np.flatnonzero(end[root:head] > head), chain]))
    return paths
