"""The key/value cache of many sessions, and the attention that reads it.

Invariants: a session's token at position p lies in its row at index p, so a row has no holes; what lies beyond a row's
length is finite garbage that no query may see. One forward takes one flat row of T new tokens of many sessions: first
one token each of the sessions that decode (`decoding`), then runs of tokens of the sessions that read a prompt or an
observation. Nothing is padded in the linear layers.

The model's own code is not touched: it is told to use the attention function ``turnwise_slots`` and hands it the plan
as a keyword. Shapes: T tokens, M sessions of a group, R cache rows, H heads, K key/value heads, C cached positions,
D head width.
"""

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from agents.engine.decoding import Band, additive, decode, hidden
from agents.model.attention.interface import with_effect
from agents.text.errors import ModelError

NAME = "turnwise_slots"
FIRST_ON_CPU, FIRST_ELSEWHERE = 4096, 128
"""Positions of a row at first. On a CPU those that nobody writes to take no memory."""


class SlotCache:
    """Keys and values of ``slots`` rows for every layer, grown by quarters up to ``max_length`` positions."""

    def __init__(self, slots: int, max_length: int, device: torch.device) -> None:
        self.slots, self.max_length = slots, max_length
        self.length = min(FIRST_ON_CPU if device.type == "cpu" else FIRST_ELSEWHERE, max_length)
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        """Per layer: keys (R, K, C, D) and values (R, K, C, D). Never NaN, or masked garbage would spread."""

    def reserve(self, length: int) -> None:
        """Makes room for positions below ``length``."""
        if length <= self.length:
            return
        self.length = min(max(length, self.length + self.length // 4), self.max_length)
        for index, pair in self.layers.items():
            grown = tuple(zeros((*x.shape[:2], self.length, x.shape[3]), x) for x in pair)
            for new, old in zip(grown, pair, strict=True):
                new[:, :, : old.shape[2]] = old
            self.layers[index] = (grown[0], grown[1])

    def places(self, kv_heads: int, row_T: Tensor, pos_T: Tensor) -> Tensor:
        """(K * T): where the tokens' keys lie in a layer seen as one list of vectors."""
        head_K1 = torch.arange(kv_heads, device=row_T.device)[:, None]
        return ((row_T * kv_heads + head_K1) * self.length + pos_T).flatten()

    def of(self, layer: int, sizes: Sequence[tuple[int, int]], like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer; made at first, where ``sizes`` are heads and width of each."""
        if layer not in self.layers:
            keys, values = (zeros((self.slots, heads, self.length, width), like) for heads, width in sizes)
            self.layers[layer] = keys, values
        return self.layers[layer]

    def write(self, layer: int, key_KTD: Tensor, value_KTD: Tensor, place: Tensor) -> None:
        """Stores the new tokens' keys and values at ``places``."""
        new_pair = key_KTD, value_KTD
        pair = self.of(layer, [(x.shape[0], x.shape[2]) for x in new_pair], key_KTD)
        for cached, new in zip(pair, new_pair, strict=True):
            cached.view(-1, cached.shape[-1]).index_copy_(0, place, new.reshape(-1, new.shape[-1]))

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """Copies the first ``length`` positions of row ``source`` to row ``target``."""
        for pair in self.layers.values():
            for x in pair:
                x[target, :, :length] = x[source, :, :length]


def zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """As ``like.new_zeros(shape)``; on a CPU memory is taken page by page, when something is written there."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    room = mmap.mmap(-1, math.prod(shape) * like.element_size(), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        room.madvise(mmap.MADV_NOHUGEPAGE)  # a large page would be taken whole
    return torch.frombuffer(room, dtype=like.dtype).view(shape)


@dataclass(frozen=True)
class RowRun:
    """Tokens ``start:stop`` of the flat row continue cache row ``row`` at position ``past``."""

    start: int
    stop: int
    row: int
    past: int

    @property
    def new(self) -> int:
        return self.stop - self.start

    @property
    def total(self) -> int:
        return self.past + self.new


@dataclass
class CachePlan:
    """One forward: where the tokens lie in the cache and what they may see."""

    cache: SlotCache
    row_T: Tensor
    pos_T: Tensor
    bands: list[Band]
    """The decoding sessions; theirs are the first tokens."""
    groups: list[list[RowRun]]
    """Runs that are computed together, padded to the longest of their group."""
    device: torch.device
    longest: int = 0
    """Positions of the longest session."""
    seen: set[int] = field(default_factory=set)
    """Layers that called the attention function: all must, or the model has state that this cache does not hold."""

    def __post_init__(self) -> None:
        self.decoding = sum(len(band.rows) for band in self.bands)
        self._stairs: dict[int | None, Tensor] = {}
        self._places: dict[int, Tensor] = {}
        singles = [g[0] for g in self.groups if len(g) == 1]
        self.new, self.past = (max((x(r) for r in singles), default=0) for x in (lambda r: r.new, lambda r: r.past))

    def places(self, kv_heads: int) -> Tensor:
        """Where the new tokens go in a layer with this many key heads."""
        if kv_heads not in self._places:
            self._places[kv_heads] = self.cache.places(kv_heads, self.row_T, self.pos_T)
        return self._places[kv_heads]

    def run_mask(self, run: RowRun, window: int | None, dtype: torch.dtype) -> Tensor:
        """(1, 1, new, total) additive mask of one run: a piece of one staircase, since what token i may see of the
        keys from ``past`` on, and how far back, depends on i alone."""
        stairs = self._stairs.get(window)
        if stairs is None:
            unseen = hidden(torch.tensor([self.past], device=self.device), self.new, self.past + self.new, window)
            self._stairs[window] = stairs = additive(unseen, dtype)
        return stairs[:, :, : run.new, self.past - run.past : self.past + run.new]


def group_runs(runs: Sequence[RowRun], waste: float | None) -> list[list[RowRun]]:
    """Puts runs together as long as padding costs at most ``waste`` times the work that is asked for; None: never."""
    if waste is None:
        return [[run] for run in runs]
    groups: list[list[RowRun]] = []
    work = 0
    for run in sorted(runs, key=lambda r: (r.past > 0, r.new, r.total)):
        mine = run.new * run.total
        if groups:
            last = groups[-1]
            new, total = max(run.new, last[-1].new), max(run.total, *(r.total for r in last))
            fits = new * total * (len(last) + 1) <= (1 + waste) * (work + mine)
            if fits and (run.past > 0) == (last[0].past > 0):
                last.append(run)
                work += mine
                continue
        groups.append([run])
        work = mine
    return groups


def _alone(
    plan: CachePlan, run: RowRun, query_HTD: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
) -> Tensor:
    """(new, H, D): one run against its row, nothing copied."""
    plain = run.past == 0 and (window is None or run.new <= window)
    return scaled_dot_product_attention(
        query_HTD[None, :, run.start : run.stop],
        keys[run.row, None, :, : run.total],
        values[run.row, None, :, : run.total],
        attn_mask=None if plain else plan.run_mask(run, window, query_HTD.dtype),
        is_causal=plain,
        scale=scale,
        enable_gqa=query_HTD.shape[0] != keys.shape[1],
    )[0].transpose(0, 1)


def _together(
    runs: list[RowRun], query_HTD: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
) -> Tensor:
    """(M, new, H, D): runs padded to the longest, against gathered rows."""
    new, total = max(r.new for r in runs), max(r.total for r in runs)
    start, last, past, row = torch.tensor(
        [(r.start, r.stop - 1, r.past, r.row) for r in runs], device=query_HTD.device
    ).unbind(1)
    at = torch.minimum(start[:, None] + torch.arange(new, device=row.device), last[:, None])
    return scaled_dot_product_attention(
        query_HTD[:, at].transpose(0, 1),
        keys[row, :, :total],
        values[row, :, :total],
        attn_mask=~hidden(past, new, total, window),
        scale=scale,
        enable_gqa=query_HTD.shape[0] != keys.shape[1],
    ).transpose(1, 2)


def slots_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    turnwise_plan: CachePlan | None = None,
    **other: Any,
) -> tuple[Tensor, None]:
    """The attention function that the model calls: query (1, H, T, D) to output (1, T, H, D).

    Raises ModelError for every option it does not implement (soft-caps, sinks, biases): ignoring one would be silent.
    """
    options = with_effect(other)
    if options or dropout or is_causal is False or attention_mask is not None:
        what = ", ".join(options) or "dropout, masks or bidirectional models"
        raise ModelError(f"the engine's attention does not implement {what}")
    if turnwise_plan is None:
        raise ModelError("this copy of the model belongs to an engine and runs only through it")
    layer = module.layer_idx
    if not isinstance(layer, int) or layer in turnwise_plan.seen:
        raise ModelError(f"layer {layer!r} attends twice in a forward; its cache would be overwritten")
    turnwise_plan.seen.add(layer)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(turnwise_plan, layer, query[0], key[0], value[0], scale, sliding_window)[None], None


def attend(
    plan: CachePlan,
    layer: int,
    query_HTD: Tensor,
    key_KTD: Tensor,
    value_KTD: Tensor,
    scale: float,
    window: int | None,
) -> Tensor:
    """(T, H, D): stores the new keys and values of a layer, and lets every new token attend."""
    plan.cache.write(layer, key_KTD, value_KTD, plan.places(key_KTD.shape[0]))
    keys, values = plan.cache.layers[layer]
    n = plan.decoding
    decoded = decode(plan.bands, query_HTD[:, :n].transpose(0, 1), keys, values, scale, window) if n else None
    if decoded is not None and not plan.groups:
        return decoded
    out = query_HTD.new_empty(query_HTD.shape[1], query_HTD.shape[0], values.shape[-1])
    if decoded is not None:
        out[:n] = decoded
    for runs in plan.groups:
        if len(runs) == 1:
            run = runs[0]
            out[run.start : run.stop] = _alone(plan, run, query_HTD, keys, values, scale, window)
        else:
            got = _together(runs, query_HTD, keys, values, scale, window)
            for m, run in enumerate(runs):
                out[run.start : run.stop] = got[m, : run.new]
    return out


AttentionInterface.register(NAME, slots_attention)
