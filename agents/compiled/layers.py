"""Norms, gates, rotary positions and scores of tokens by ``layers.c``: the same on tensors.

Legend: N rows, D width, T tokens, H heads, V vocabulary; gates are of any shape.
"""

from ctypes import CDLL, c_float, c_ssize_t, c_void_p
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from agents.compiled.build import library, why_not
from agents.compiled.threads import in_threads, shares

SOURCE = Path(__file__).with_name("layers.c")
WORTH = 1 << 17
"""Numbers of a call that pay for a further thread."""


def missing() -> str:
    """Why it cannot be called here, to follow "since"; empty where it can."""
    return why_not(SOURCE)


def fits(*tensors: Tensor) -> bool:
    """Whether they are float32 on a CPU of which PyTorch uses one thread, as the C does."""
    here = all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors)
    return here and torch.get_num_threads() == 1


def gate(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    _call("gate", gate.numel(), 1, _Rows(gate, 1), _Rows(up, 1), _Rows(out, 1))
    return out


def gate_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients by gate and up."""
    inputs = [x.contiguous() for x in (grad, gate, up)]
    by_gate, by_up = torch.empty_like(inputs[1]), torch.empty_like(inputs[2])
    _call("gate_back", grad.numel(), 1, *(_Rows(x, 1) for x in (*inputs, by_gate, by_up)))
    return by_gate, by_up


def norm(x_ND: Tensor, weight_D: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x over its root mean square, times the weight; one over the root mean square [N])."""
    x_ND, D = x_ND.contiguous(), x_ND.shape[-1]
    out_ND, inverse_N = torch.empty_like(x_ND), x_ND.new_empty(x_ND.shape[:-1])
    rows = _Rows(x_ND, D), weight_D.contiguous(), _Rows(out_ND, D), _Rows(inverse_N, 1)
    _call("norm", inverse_N.numel(), D, D, eps, *rows)
    return out_ND, inverse_N


def norm_backward(grad_ND: Tensor, x_ND: Tensor, weight_D: Tensor, inverse_N: Tensor) -> Tensor:
    """The gradient by x."""
    grad_ND, x_ND, weight_D, inverse_N = (x.contiguous() for x in (grad_ND, x_ND, weight_D, inverse_N))
    D = x_ND.shape[-1]
    by_x_ND = torch.empty_like(x_ND)
    rows = _Rows(grad_ND, D), _Rows(x_ND, D), weight_D, _Rows(inverse_N, 1), _Rows(by_x_ND, D)
    _call("norm_back", inverse_N.numel(), D, D, *rows)
    return by_x_ND


def turn(x_HTD: Tensor, cos_TD: Tensor, sin_TD: Tensor, *, back: bool = False) -> Tensor:
    """Rotary positions; ``back`` makes a gradient by the turned numbers one by x. A token's heads lie side by side."""
    x_HTD = x_HTD if x_HTD.stride(-1) == 1 else x_HTD.contiguous()
    H, T, D = x_HTD.shape
    out_THD, (h, t, _) = x_HTD.new_empty(T, H, D), x_HTD.stride()
    rows = (_Rows(x, D) for x in (cos_TD.contiguous(), sin_TD.contiguous()))
    name = "turn_back" if back else "turn"
    _call(name, T, H * D, H, D, _Rows(x_HTD, t), t, h, *rows, _Rows(out_THD, H * D))
    return out_THD.transpose(0, 1)


def score(logits_NV: Tensor, token_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(log-probability of each token, entropy in nats, norm: the logarithm of the sum of the exponentials).

    The tokens must lie within the vocabulary.
    """
    logits_NV, (N, V) = logits_NV.contiguous(), logits_NV.shape
    out_3N = logits_NV.new_empty(3, N)
    _call("score", N, V, V, _Rows(logits_NV, V), *(_Rows(x, 1) for x in (token_N.contiguous(), *out_3N)))
    logp_N, entropy_N, norm_N = out_3N
    return logp_N, entropy_N, norm_N


def score_backward(grad_N: Tensor, logits_NV: Tensor, token_N: Tensor, norm_N: Tensor) -> Tensor:
    """The gradient by the logits, of the log-probabilities."""
    grad_N, logits_NV, token_N, norm_N = (x.contiguous() for x in (grad_N, logits_NV, token_N, norm_N))
    N, V = logits_NV.shape
    by_logits_NV = torch.empty_like(logits_NV)
    rows = _Rows(grad_N, 1), _Rows(logits_NV, V), _Rows(token_N, 1), _Rows(norm_N, 1), _Rows(by_logits_NV, V)
    _call("score_back", N, V, V, *rows)
    return by_logits_NV


# -- the call ---------------------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """A tensor of which every part of the rows gets its own; a row begins ``width`` numbers after the one before."""

    of: Tensor
    width: int

    def at(self, row: int) -> int:
        """Where that row begins."""
        return self.of.data_ptr() + row * self.width * self.of.element_size()


def _call(name: str, rows: int, numbers: int, *arguments: _Rows | Tensor | float) -> None:
    """For each part of the rows, of so many numbers each, in a thread of its own. Of tensors the C gets the addresses.
    It is not called for tensors without numbers, which have shapes alone."""
    if any(isinstance(x.of if isinstance(x, _Rows) else x, FakeTensor) for x in arguments):
        return
    function = getattr(_called(), f"turnwise_{name}")
    given = [x.data_ptr() if isinstance(x, Tensor) else x for x in arguments]

    def part(a: int, b: int) -> None:
        function(b - a, *(x.at(a) if isinstance(x, _Rows) else x for x in given))

    parts = shares(rows, -(-WORTH // max(1, numbers)))
    if len(parts) == 1:
        part(0, rows)
    else:
        in_threads([partial(part, a, b) for a, b in parts])


def _called() -> CDLL:
    """The library, whose functions know their arguments."""
    found = library(SOURCE)
    if not found.turnwise_gate.argtypes:
        size, numbers = c_ssize_t, c_void_p
        found.turnwise_gate.argtypes = (size, *[numbers] * 3)
        found.turnwise_gate_back.argtypes = (size, *[numbers] * 5)
        found.turnwise_norm.argtypes = (size, size, c_float, *[numbers] * 4)
        found.turnwise_norm_back.argtypes = (size, size, *[numbers] * 5)
        found.turnwise_score.argtypes = found.turnwise_score_back.argtypes = (size, size, *[numbers] * 5)
        for turning in (found.turnwise_turn, found.turnwise_turn_back):
            turning.argtypes = (size, size, size, numbers, size, size, *[numbers] * 3)
        for function in ("gate", "gate_back", "norm", "norm_back", "turn", "turn_back", "score", "score_back"):
            getattr(found, f"turnwise_{function}").restype = None
    return found
