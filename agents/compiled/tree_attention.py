"""Attention over token trees by ``tree_attention.c``: the same on tensors.

Legend: T tokens, H heads, G key heads, D width of a head, P parts that are computed at once.
"""

from collections.abc import Callable, Sequence
from ctypes import CDLL, POINTER, Structure, byref, c_float, c_ssize_t, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from agents.compiled.build import library, why_not
from agents.compiled.threads import allowed, in_threads

SOURCE = Path(__file__).with_name("tree_attention.c")
WORTH = 1 << 21
"""Multiplications of a call that pay for a further thread."""


def missing() -> str:
    """Why it cannot be called here, to follow "since"; empty where it can."""
    return why_not(SOURCE)


@dataclass(frozen=True)
class Stretches:
    """Which rows see which keys. Everything is counted in places of the row; arrays as in the source."""

    first: NDArray[np.int32]
    rows: NDArray[np.int32]
    begin: NDArray[np.int32]
    spans: NDArray[np.int32]
    longest: int
    """Keys of the longest path."""


def stretches(chains: Sequence[NDArray[np.int64]], paths: Sequence[NDArray[np.int64]]) -> Stretches:
    """From the places of each chain, and of each chain with its ancestors before it."""
    spans = [_runs(path) for path in paths]
    return Stretches(
        _edges([chain.size for chain in chains]),
        np.concatenate(chains).astype(np.int32),
        _edges([len(span) for span in spans]),
        np.concatenate(spans).astype(np.int32),
        max(path.size for path in paths),
    )


def _runs(path: NDArray[np.int64]) -> NDArray[np.int64]:
    """[stretches, 2]: the first place of each, and the one after its last."""
    cut = np.flatnonzero(np.diff(path) != 1) + 1
    return np.stack([path[[0, *cut]], path[[*(cut - 1), -1]] + 1], 1)


def _edges(sizes: list[int]) -> NDArray[np.int32]:
    return np.cumsum([0, *sizes]).astype(np.int32)


def forward(
    query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, seen: Stretches, window: int | None, scale: float
) -> tuple[Tensor, Tensor]:
    """(what every row reads [T, H, D], the norm of its weights [T, H]), both for ``backward``. All are ``packed``."""
    inputs = [_heads(x) for x in (query_THD, key_TGD, value_TGD)]
    out_THD, norm_TH = query_THD.new_empty(query_THD.shape), query_THD.new_empty(query_THD.shape[:2])

    def call(trees: _Trees, scratch: Tensor, part: int) -> None:
        _called().turnwise_forward(
            byref(trees), *map(byref, inputs), scratch.data_ptr(), out_THD.data_ptr(), norm_TH.data_ptr()
        )

    _in_parts(call, _parts(query_THD, seen, window), query_THD, key_TGD, seen, window, scale)
    return out_THD, norm_TH


def backward(
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TGD: Tensor,
    value_TGD: Tensor,
    out_THD: Tensor,
    norm_TH: Tensor,
    seen: Stretches,
    window: int | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by query, key and value."""
    grad_THD, parts = packed(grad_THD), _parts(query_THD, seen, window)
    inputs, grad = [_heads(x) for x in (query_THD, key_TGD, value_TGD)], _heads(grad_THD)
    by_query_THD = query_THD.new_empty(query_THD.shape)
    sums = 1 if key_TGD.shape[1] % parts == 0 else parts  # parts of whole heads share one
    by_key_PTGD, by_value_PTGD = (key_TGD.new_empty(sums, *key_TGD.shape) for _ in range(2))

    def call(trees: _Trees, scratch: Tensor, part: int) -> None:
        _called().turnwise_backward(
            byref(trees), *map(byref, inputs), scratch.data_ptr(), out_THD.data_ptr(), norm_TH.data_ptr(), byref(grad),
            by_query_THD.data_ptr(), by_key_PTGD[part % sums].data_ptr(), by_value_PTGD[part % sums].data_ptr(),
        )  # fmt: skip

    _in_parts(call, parts, query_THD, key_TGD, seen, window, scale)
    by_key_TGD, by_value_TGD = (x[0] if sums == 1 else x.sum(0) for x in (by_key_PTGD, by_value_PTGD))
    return by_query_THD, by_key_TGD, by_value_TGD


def packed(x_THD: Tensor) -> Tensor:
    """The same, with the numbers of a head side by side."""
    return x_THD if x_THD.stride(-1) == 1 else x_THD.contiguous()


# -- the call ---------------------------------------------------------------------------------------------------------


class _Heads(Structure):
    _fields_ = (("at", c_void_p), ("t", c_ssize_t), ("h", c_ssize_t))


class _Trees(Structure):
    _fields_ = (
        *((name, c_ssize_t) for name in "THGD"),
        ("scale", c_float),
        *((name, c_ssize_t) for name in ("window", "chains", "top")),
        *((name, c_void_p) for name in ("first", "rows", "begin", "spans")),
        *((name, c_ssize_t) for name in ("part", "parts")),
    )


def _heads(x_THD: Tensor) -> _Heads:
    at = None if isinstance(x_THD, FakeTensor) else x_THD.data_ptr()
    return _Heads(at, x_THD.stride(0), x_THD.stride(1))


def _parts(query_THD: Tensor, seen: Stretches, window: int | None) -> int:
    """How many parts are computed at once: as many as there may be threads, and as the work pays for."""
    T, H, D = query_THD.shape
    width = seen.longest if window is None else min(window, seen.longest)
    return max(1, min(allowed(), T * width * H * D // WORTH))


def _in_parts(
    call: Callable[[_Trees, Tensor, int], None],
    parts: int,
    query_THD: Tensor,
    key_TGD: Tensor,
    seen: Stretches,
    window: int | None,
    scale: float,
) -> None:
    """Calls for each part, in a thread of its own. Tensors without numbers have shapes alone: nothing is called."""
    T, H, D = query_THD.shape
    arrays = [x.ctypes.data for x in (seen.first, seen.rows, seen.begin, seen.spans)]

    chains, G, calls = seen.first.size - 1, key_TGD.shape[1], []
    for part in range(parts):
        trees = _Trees(T, H, G, D, scale, window or T, chains, seen.longest, *arrays, part, parts)
        scratch = query_THD.new_empty(_called().turnwise_scratch(byref(trees)))
        calls.append(partial(call, trees, scratch, part))
    if not isinstance(query_THD, FakeTensor):
        in_threads(calls)


def _called() -> CDLL:
    """The library, whose functions know their arguments."""
    found = library(SOURCE)
    if found.turnwise_scratch.restype is not c_ssize_t:
        trees, heads, numbers = POINTER(_Trees), POINTER(_Heads), c_void_p
        found.turnwise_scratch.argtypes, found.turnwise_scratch.restype = (trees,), c_ssize_t
        inputs = (trees, heads, heads, heads, numbers, numbers, numbers)
        found.turnwise_forward.argtypes, found.turnwise_forward.restype = inputs, None
        found.turnwise_backward.argtypes = (*inputs, heads, numbers, numbers, numbers)
        found.turnwise_backward.restype = None
    return found
