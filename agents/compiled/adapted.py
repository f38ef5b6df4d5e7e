"""Linear layers with LoRA, and gated MLPs of three of them, by ``adapted.c``: the same on tensors.

Legend: N rows, I and O features in and out, R rank, F width of the MLP.
"""

from collections.abc import Sequence
from ctypes import CDLL, POINTER, Structure, c_float, c_ssize_t, c_void_p
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from agents.compiled import layers
from agents.compiled.build import library, why_not
from agents.compiled.processor import maker
from agents.compiled.threads import in_threads, shares

SOURCE = Path(__file__).with_name("adapted.c")
ROWS, NUMBERS, VECTOR, PART = 64, 1 << 19, 16, 256
"""Rows from which it pays; numbers of a weight up to which it does; numbers of the widest vector there is; rows that
pay for a further thread."""


class Adapted(NamedTuple):
    """x (W + scale * B A)^T + bias, for a frozen W and bias."""

    weight_OI: Tensor
    bias_O: Tensor | None
    A_RI: Tensor
    B_OR: Tensor
    scale: float


def missing() -> str:
    """Why it cannot be called here, to follow "since"; empty where it can."""
    return why_not(SOURCE)


@cache
def pays() -> bool:
    """Whether it is taken to be faster than PyTorch's products: with AVX2 alone, on processors not of Intel's make.

    It was measured on AMD's Zen 3. With wider instructions oneDNN multiplies (`onednn_linear`).
    """
    return torch.backends.cpu.get_cpu_capability() == "AVX2" and "GenuineIntel" not in maker() and not missing()


def fits(x_NI: Tensor, *adapted: Adapted) -> bool:
    """Whether they are what the C was written for, and not too few rows or too large weights for it to pay."""
    if x_NI.shape[0] < ROWS or not (pays() and layers.fits(x_NI)):
        return False
    weights = [one.weight_OI for one in adapted]
    whole = all(side % VECTOR == 0 for weight_OI in weights for side in weight_OI.shape)
    return whole and layers.fits(*weights) and all(weight_OI.numel() <= NUMBERS for weight_OI in weights)


def forward(x_NI: Tensor, adapted: Adapted) -> Tensor:
    """[N, O]. ``x_NI`` is contiguous, here and below."""
    out_NO = x_NI.new_empty(x_NI.shape[0], adapted.weight_OI.shape[0])
    _call("adapted", [adapted], [x_NI], [out_NO])
    return out_NO


def backward(
    grad_NO: Tensor, x_NI: Tensor | None, adapted: Adapted, for_x: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients by x, where it is wanted, and by A and B. Where these have no ranks, x may be None."""
    by_x_NI = grad_NO.new_empty(grad_NO.shape[0], adapted.weight_OI.shape[1]) if for_x else None
    (grads,) = _learn("adapted_back", [adapted], [grad_NO.contiguous(), x_NI], by_x_NI)
    return by_x_NI, *grads


def mlp(x_NI: Tensor, gate: Adapted, up: Adapted, down: Adapted) -> tuple[Tensor, Tensor, Tensor]:
    """(down(silu(gate(x)) * up(x)) [N, O], gate(x) [N, F], up(x) [N, F])."""
    gate_NF, up_NF = (x_NI.new_empty(x_NI.shape[0], gate.weight_OI.shape[0]) for _ in range(2))
    out_NO = x_NI.new_empty(x_NI.shape[0], down.weight_OI.shape[0])
    _call("mlp", [gate, up, down], [x_NI], [gate_NF, up_NF, out_NO])
    return out_NO, gate_NF, up_NF


def mlp_backward(
    grad_NO: Tensor, x_NI: Tensor, gate_NF: Tensor, up_NF: Tensor, adapted: Sequence[Adapted], for_x: bool
) -> tuple[Tensor | None, list[tuple[Tensor, Tensor]]]:
    """The gradients by x, where it is wanted, and by A and B of gate, up and down."""
    by_x_NI = torch.empty_like(x_NI) if for_x else None
    return by_x_NI, _learn("mlp_back", adapted, [grad_NO.contiguous(), x_NI, gate_NF, up_NF], by_x_NI)


# -- the call ---------------------------------------------------------------------------------------------------------


class _Layer(Structure):
    _fields_ = (
        *((name, c_ssize_t) for name in "IOR"),
        ("scale", c_float),
        *((name, c_void_p) for name in ("weight", "bias", "A", "B", "by_A", "by_B")),
    )


Grads = list[tuple[Tensor, Tensor]]
"""By A and B of each layer."""


def _learn(name: str, adapted: Sequence[Adapted], rows: Sequence[Tensor | None], by_x_NI: Tensor | None) -> Grads:
    """Sums of what the parts of the rows add."""
    parts: list[Grads] = []
    _call(name, adapted, rows, [by_x_NI], parts)
    pairs = [zip(*layer, strict=True) for layer in zip(*parts, strict=True)]
    return [(sum(by_A[1:], by_A[0]), sum(by_B[1:], by_B[0])) for by_A, by_B in pairs]


def _call(
    name: str,
    adapted: Sequence[Adapted],
    rows: Sequence[Tensor | None],
    out: Sequence[Tensor | None],
    grads: list[Grads] | None = None,
) -> None:
    """Calls for each part of the rows, in a thread of its own, of which ``grads`` gets the gradients where it is given.

    The first of ``rows`` is not None. Tensors without numbers have shapes alone: with them nothing is called.
    """
    first: Tensor = rows[0]  # type: ignore[assignment]
    held = [[x if x is None else x.contiguous() for x in one[:4]] for one in adapted]
    c, calls = _called(), []
    size = c.turnwise_adapted_scratch if len(adapted) == 1 else c.turnwise_mlp_scratch
    for a, b in shares(first.shape[0], PART):
        by: Sequence[Sequence[Tensor]] = [()] * len(adapted)
        if grads is not None:
            by = [[x.new_empty(x.shape) for x in (one.A_RI, one.B_OR)] for one in adapted]
            grads.append([(by_A, by_B) for by_A, by_B in by])
        layers = (_Layer * len(adapted))(
            *(
                _Layer(*reversed(one.weight_OI.shape), one.A_RI.shape[0], one.scale, *map(_address, [*own, *its]))
                for one, own, its in zip(adapted, held, by, strict=True)
            )
        )
        scratch = first.new_empty(size(layers))
        here = [*(_address(x, a) for x in rows), _address(scratch), *(_address(x, a) for x in out)]
        calls.append((partial(getattr(c, f"turnwise_{name}"), layers, b - a, *here), scratch))
    if not isinstance(first, FakeTensor):
        in_threads([call for call, _ in calls])


def _address(x: Tensor | None, row: int = 0) -> int | None:
    """Where a row begins."""
    return None if x is None or isinstance(x, FakeTensor) else x.data_ptr() + 4 * row * (x.stride(0) if row else 0)


def _called() -> CDLL:
    """The library, whose functions know their arguments."""
    found = library(SOURCE)
    if found.turnwise_adapted_scratch.restype is not c_ssize_t:
        layers, numbers = POINTER(_Layer), c_void_p
        for name, pointers in (("adapted", 3), ("adapted_back", 4), ("mlp", 5), ("mlp_back", 6)):
            function = getattr(found, f"turnwise_{name}")
            function.argtypes, function.restype = (layers, c_ssize_t, *[numbers] * pointers), None
        for name in ("mlp_scratch", "adapted_scratch"):
            function = getattr(found, f"turnwise_{name}")
            function.argtypes, function.restype = (layers,), c_ssize_t
    return found
