"""Which queries meet which keys: the attention of a row of token trees, cut into few dense kernel calls.

Invariant: any interval ``a:b`` of rows in depth-first order, together with the ancestors of row a, holds every
ancestor of its own rows. So a *block* is the queries ``a:b`` against the keys ``ancestors(a) + a:b``, with a mask on
that small rectangle only; leaves, forks, several trees a row and sliding windows are all the same case. A chain that
is too long for a mask becomes one causal call without any mask, and its blocks keep only the other rows as queries.
Blocks of similar shape share one padded kernel call. Nothing of size T x T is ever made, unless the tree is one block.

Why blocks even where ``is_causal`` would do: below about 1000 tokens the CPU kernel computes the upper triangle of a
causal call anyway, so pieces of a chain against their own prefixes cost about two thirds of it.

Legend: T tokens, B blocks of one call, Q queries and K keys of a block, N the queries of all calls one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.mask import additive

Rows = NDArray[np.int64]

BLOCK = 96  # least number of queries of a block: fewer would gather the same keys too often
SHARE = 3  # a block deep in a chain has depth / SHARE queries, so that the gathered keys stay a few times T
LONG = 1024  # chains of this length or more are computed causally, without a mask
CALL_COST = 16000  # what one more kernel call costs, in query-key pairs
PADDING = 0.05  # share of padded pairs that a call may have beyond that


@dataclass(frozen=True)
class Item:
    """Queries and keys (row numbers) of one block."""

    q: Rows
    kv: Rows
    keep: Rows | None = None
    """Which of ``q`` a causal item computes for; its queries and keys are the same rows. None: a masked block."""

    @property
    def pairs(self) -> int:
        return self.q.size * self.kv.size


@dataclass(frozen=True)
class Call:
    """One kernel call over B blocks, padded to the same shape. Padded outputs are never read."""

    blocks: int
    queries: int
    keys: int
    mask_B1QK: Tensor | None
    """0 / -inf; None for a causal call."""


@dataclass(frozen=True)
class Plan:
    """All calls of a row, for one window."""

    calls: tuple[Call, ...]
    query_N: Tensor
    """Row of each query of each call."""
    key_M: Tensor
    """Row of each key of each call."""
    output_T: Tensor
    """Where in N the output of a row lies."""


class TreePlan:
    """The plans of one row of trees: one per sliding window, made when a layer first asks for it."""

    def __init__(self, pos_T: Tensor, end_T: Tensor, device: torch.device | str = "cpu") -> None:
        self._pos: Rows = pos_T.cpu().numpy()
        self._end: Rows = end_T.cpu().numpy()
        self._device = device
        self._plans: dict[tuple[int | None, torch.dtype], Plan] = {}

    def __len__(self) -> int:
        return self._pos.size

    def get(self, window: int | None, dtype: torch.dtype) -> Plan:
        """The plan for a layer with this sliding window (None: full attention) and scores of ``dtype``."""
        if window is not None and self._pos.max(initial=0) < window:
            window = None
        key = (window, dtype)
        if key not in self._plans:
            items = list(_items(self._pos, self._end, window))
            self._plans[key] = _compile(items, self._pos, self._end, window, dtype, self._device)
        return self._plans[key]


def _items(pos: Rows, end: Rows, window: int | None) -> Iterator[Item]:
    """Every row as a query of exactly one item."""
    rest = np.ones(pos.size, dtype=bool)
    if window is None:
        for own, path in _long_chains(pos, end):
            rest[own] = False
            yield Item(path, path, keep=np.flatnonzero(np.isin(path, own)))
    last = np.zeros(pos.max(initial=0) + 1, dtype=np.int64)  # last[d]: the last row so far at depth d
    for a, b in _blocks(pos):
        # In depth-first order the ancestor of a at depth d is the last row before a at that depth.
        first = 0 if window is None else max(0, int(pos[a:b].min()) - window + 1)
        kv = np.concatenate([last[first : pos[a]], np.arange(a, b)])
        last[pos[a:b]] = np.arange(a, b)
        q = np.flatnonzero(rest[a:b]) + a
        if q.size:
            yield Item(q, kv[(kv <= q[-1]) & (end[kv] > q[0])])


def _blocks(pos: Rows) -> Iterator[tuple[int, int]]:
    """Intervals of rows: cut where a tree or a long branch begins, and into roughly equal parts in between."""
    before = np.concatenate([[-1], pos[:-1]])
    starts = np.flatnonzero((pos == 0) | (before + 1 - pos > BLOCK // 2))
    for a, b in zip(starts, [*starts[1:], pos.size], strict=True):
        size = max(BLOCK, int(pos[a:b].max()) // SHARE)
        parts = max(1, round((b - a) / size))
        edges = np.linspace(a, b, parts + 1).round().astype(int)
        yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _long_chains(pos: Rows, end: Rows) -> Iterator[tuple[Rows, Rows]]:
    """(own rows, root path with them) of chains that are worth a causal call of their own, deepest first."""
    free = pos >= LONG - 1
    owned = np.zeros(pos.size, dtype=bool)
    while free.any():
        tip = int(np.argmax(np.where(free, pos, -1)))
        path = np.flatnonzero(end[: tip + 1] > tip)
        own = path[~owned[path]]
        free[own] = False
        # The path above the chain is computed a second time and thrown away: only worth it when it is short.
        if own.size >= LONG and path.size <= 1.5 * own.size:
            owned[own] = True
            yield own, path


def _compile(
    items: list[Item], pos: Rows, end: Rows, window: int | None, dtype: torch.dtype, device: torch.device | str
) -> Plan:
    nobody = pos.size  # a padded key: a row that no query sees
    end, depth = np.append(end, 0), np.append(pos, 0)
    calls, query, key = [], [], []
    output = np.empty(pos.size, dtype=np.int64)
    offset = 0
    for group in _group(items):
        Q, K = max(item.q.size for item in group), max(item.kv.size for item in group)
        # A padded query repeats the first one, so that it sees something.
        q_BQ = np.stack([np.append(item.q, np.full(Q - item.q.size, item.q[0])) for item in group])
        kv_BK = np.stack([np.append(item.kv, np.full(K - item.kv.size, nobody)) for item in group])
        mask = None
        if group[0].keep is None:
            q_BQ1, kv_B1K = q_BQ[:, :, None], kv_BK[:, None, :]
            seen = (kv_B1K <= q_BQ1) & (q_BQ1 < end[kv_B1K])
            if window is not None:
                seen &= depth[q_BQ1] - depth[kv_B1K] < window
            mask = additive(torch.from_numpy(seen[:, None]), dtype).to(device)
        for i, item in enumerate(group):
            keep = np.arange(item.q.size) if item.keep is None else item.keep
            output[item.q[keep]] = offset + i * Q + keep
        calls.append(Call(len(group), Q, K, mask))
        query.append(q_BQ.ravel())
        key.append(np.where(kv_BK == nobody, 0, kv_BK).ravel())
        offset += q_BQ.size
    index = (torch.from_numpy(x).to(device) for x in (np.concatenate(query), np.concatenate(key), output))
    return Plan(tuple(calls), *index)


def _group(items: list[Item]) -> list[list[Item]]:
    """Items of similar shape together, as long as padding them costs less than another call."""
    groups: list[list[Item]] = []
    shapes: list[tuple[int, int, int]] = []  # (queries, keys, pairs that are no padding) of each group
    for item in sorted(items, key=lambda item: (item.kv.size, item.q.size), reverse=True):
        best, best_waste = -1, float("inf")
        for index, (queries, keys, pairs) in enumerate(shapes):
            if (groups[index][0].keep is None) != (item.keep is None):
                continue
            total = (len(groups[index]) + 1) * max(queries, item.q.size) * keys
            waste = total - pairs - item.pairs
            if waste <= CALL_COST + PADDING * (pairs + item.pairs) and waste < best_waste:
                best, best_waste = index, waste
        if best < 0:
            groups.append([item])
            shapes.append((item.q.size, item.kv.size, item.pairs))
        else:
            queries, keys, pairs = shapes[best]
            groups[best].append(item)
            shapes[best] = (max(queries, item.q.size), keys, pairs + item.pairs)
    return groups
