"""The attention of a row of token trees as a plan of few dense kernel calls.

Invariant: every row is a query of exactly one call, and a call's keys hold every ancestor of its queries; what else is
among them is masked. Forks, leaves, several trees a row and sliding windows are all the same case.

The rows are taken apart into *chains* (``chains``). Along a chain a call takes some rows in a piece with all their
ancestors, and its mask is the lower right corner of one mask that all such calls share. Short chains, like critic
prompts, share a call where that is cheaper. Where the keys that all queries of a call see are many, they need no mask
(`LEAST_OPEN`). So nothing of size T x T is ever made. Laid out chain by chain, the rows of a piece are one slice and
its keys few, which saves copies: ``by_chains``.

Why pieces even where ``is_causal`` would do: the CPU kernel follows the triangle of a causal call in steps of 512 keys.

Legend: T tokens, Q queries and K keys of a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.model.attention.chains import Rows, chains_of, paths_of
from agents.model.attention.kernels import AttentionPlan, Call, Spans, attend
from agents.model.attention.mask import additive
from agents.model.attention.near import WIDEST, NearPlan, plan_near

# What a call costs beside its query-key pairs, in pairs: measured on a CPU for four heads of 64.
CALL = 3000  # the call itself
KEY = 8  # per key: reading it, and adding up its gradient
COPY = 5  # per key where the keys are no slice and must be copied together
LEAST_OPEN = 1 << 17
"""Query-key pairs whose mask is left out, by a kernel call of their own, where every query of a call sees every key."""


class TreePlan:
    """The plans of one row of trees: one per sliding window, made when a layer first asks for it.

    ``by_chains``: the model will be given the rows as ``order_T`` lays them out, not depth first.
    """

    def __init__(
        self, pos_T: Tensor, end_T: Tensor, device: torch.device | str = "cpu", *, by_chains: bool = False
    ) -> None:
        self._pos: Rows = pos_T.cpu().numpy()
        self._end: Rows = end_T.cpu().numpy()
        self._device = device
        self._chains = chains_of(self._pos, self._end)
        self._plans: dict[tuple[int | None, torch.dtype], AttentionPlan] = {}
        self._near: dict[tuple[int, torch.dtype], NearPlan] = {}
        self._place = np.arange(self._pos.size)
        self.order_T: Tensor | None = None
        """Row (depth first) of each place; None where the two are the same."""
        self.place_T: Tensor | None = None
        """Its inverse."""
        if by_chains and len(self._chains) > 1:
            order = np.concatenate(self._chains)
            self._place[order] = np.arange(order.size)
            self.order_T, self.place_T = (torch.from_numpy(x).to(device) for x in (order, self._place))

    def __len__(self) -> int:
        return self._pos.size

    def get(self, window: int | None, dtype: torch.dtype) -> AttentionPlan:
        """The plan for a layer with this sliding window (None: full attention) and scores of ``dtype``."""
        if window is not None and self._pos.max(initial=0) < window:
            window = None
        key = (window, dtype)
        if key not in self._plans:
            pieces = list(_merged(list(_pieces(self._chains, self._pos, self._end, window)), self._end))
            self._plans[key] = AttentionPlan(tuple(self._calls(pieces, window, dtype)))
        return self._plans[key]

    def attend(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, window: int | None, scale: float | None
    ) -> Tensor:
        """[T, H, D]: attention of every row to its ancestors within the window."""
        if window is not None and window * (query_THD.shape[1] // key_TGD.shape[1]) <= WIDEST:
            key = (window, query_THD.dtype)
            if key not in self._near:
                self._near[key] = plan_near(self._pos, self._place, *key, self._device)
            return self._near[key].attend(query_THD, key_TGD, value_TGD, scale)
        return attend(query_THD, key_TGD, value_TGD, self.get(window, query_THD.dtype), scale)

    def _calls(self, pieces: list[Piece], window: int | None, dtype: torch.dtype) -> Iterator[Call]:
        opened = [piece.opened(self._end) if window is None else 0 for piece in pieces]
        chained = [(piece, piece.k.size - n) for piece, n in zip(pieces, opened, strict=True) if piece.chain]
        Q, K = max((p.q.size for p, _ in chained), default=0), max((n for _, n in chained), default=0)
        behind_QK = np.arange(Q)[:, None] + K - Q - np.arange(K)  # how far each key lies behind each query
        seen_QK = (behind_QK >= 0) & (behind_QK < (K + 1 if window is None else window))
        corner_QK = self._additive(seen_QK, dtype)
        for piece, n in zip(pieces, opened, strict=True):
            open_K, masked_K = piece.k[:n], piece.k[n:]
            if piece.chain:
                mask_QK = corner_QK[Q - piece.q.size :, K - masked_K.size :]
            else:
                q_Q1, k_1K = piece.q[:, None], masked_K[None, :]
                seen_QK = (k_1K <= q_Q1) & (q_Q1 < self._end[k_1K])
                if window is not None:
                    seen_QK &= self._pos[q_Q1] - self._pos[k_1K] < window
                mask_QK = self._additive(seen_QK, dtype)
            yield Call(self._spans(piece.q), self._spans(masked_K), mask_QK, self._spans(open_K) if n else ())

    def _additive(self, seen_QK: NDArray[np.bool_], dtype: torch.dtype) -> Tensor:
        return additive(torch.from_numpy(seen_QK), dtype).to(self._device)

    def _spans(self, rows: Rows) -> Spans:
        """Where the rows lie, in as few stretches as there are."""
        place = self._place[rows]
        edges = [0, *(np.flatnonzero(np.diff(place) != 1) + 1).tolist(), place.size]
        return tuple(slice(int(place[a]), int(place[b - 1]) + 1) for a, b in pairwise(edges))


@dataclass(frozen=True)
class Piece:
    """Rows (depth first) that one call takes as queries ``q``, and their keys ``k``."""

    q: Rows
    k: Rows
    chain: bool
    """The queries are the last keys, and every key is an ancestor of every later query."""
    whole: bool
    """All of a chain: it may share a call with others."""

    @property
    def cost(self) -> float:
        """In query-key pairs."""
        return (self.q.size + KEY + COPY) * self.k.size + CALL

    def opened(self, end: Rows) -> int:
        """How many of the first keys need no mask, because every query sees them; 0 where they are few."""
        # Keys above all queries come first: any other key lies below them, and so in a later row.
        seen = self.k.size - self.q.size if self.chain else common(self.k, self.q, end)
        return seen if seen * self.q.size >= LEAST_OPEN else 0


def common(k: Rows, q: Rows, end: Rows) -> int:
    """How many of the keys ``k`` lie above all of ``q``, both sorted; no query is among them."""
    return int(((k < q[0]) & (end[k] > q[-1])).sum())


def _pieces(chains: list[Rows], pos: Rows, end: Rows, window: int | None) -> Iterator[Piece]:
    """Every chain cut into about equal parts, so that the cost of the calls and of what is masked is least."""
    for chain, path in zip(chains, paths_of(chains, pos, end), strict=True):
        n, above = chain.size, path.size - chain.size
        keys = above + n / 2 if window is None else min(above + n / 2, window)
        best = sqrt(2 * ((KEY + COPY * (above > 0)) * keys + CALL))
        parts = max(1, round(n / best))
        edges = np.linspace(0, n, parts + 1).round().astype(int).tolist()
        for a, b in pairwise(edges):
            start = 0 if window is None else max(0, above + a - window + 1)
            yield Piece(chain[a:b], path[start : above + b], chain=True, whole=parts == 1)


def _merged(pieces: list[Piece], end: Rows) -> Iterator[Piece]:
    """Neighbours in one call as long as that makes a query cheaper."""
    held: Piece | None = None
    for piece in pieces:
        if held is not None and held.whole and piece.whole:
            q = np.sort(np.concatenate([held.q, piece.q]))
            # Both begin with the keys above all queries, unless a window begins elsewhere for each.
            n = common(piece.k, q, end) if held.k[0] == piece.k[0] else 0
            k = np.concatenate([piece.k[:n], np.union1d(held.k[n:], piece.k[n:])])
            both = Piece(q, k, chain=False, whole=True)
            if both.cost / both.q.size <= held.cost / held.q.size:
                held = both
                continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held
