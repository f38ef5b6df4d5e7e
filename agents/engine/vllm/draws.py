"""The project's own draws inside vLLM: a logits processor that leaves the drawn token no alternative.

Invariant: the arithmetic is that of `agents.engine.sampling.draw`, on the logits that vLLM computed. Token k of a
request uses number k of its uniform numbers even where vLLM computes a step twice (a prompt read in parts, a request
that was preempted): k is how many tokens the request has, not how often it was asked.

Shapes: N rows of the batch, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from agents.engine.base import SamplingSettings
from agents.engine.sampling import draw

KEY = "turnwise"
"""Name among a request's extra arguments: the number of its `Drawn`."""


@dataclass
class Drawn:
    """What is drawn for one request."""

    uniforms: list[float]
    sampling: SamplingSettings
    out: list[tuple[float, float, float]] = field(default_factory=list)
    """(token, log-probability, entropy) of each token."""


def processor(drawn: dict[int, Drawn]) -> type[LogitsProcessor]:
    """The class that vLLM makes its processor from; ``drawn`` holds the requests by their number."""
    look_up: Callable[[int], Drawn] = drawn.__getitem__

    class OwnDraws(LogitsProcessor):
        """Rows of requests without a number are left as they are."""

        def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
            self.rows: dict[int, tuple[Drawn, list[int]]] = {}
            """By row of the batch: the request, and vLLM's list of the tokens it has."""

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: BatchUpdate | None) -> None:
            if batch_update is None:
                return
            for row in batch_update.removed:
                self.rows.pop(row, None)
            for row, params, _, sampled in batch_update.added:
                self.rows.pop(row, None)
                if params.extra_args and KEY in params.extra_args:
                    self.rows[row] = look_up(params.extra_args[KEY]), sampled
            for one, other, direction in batch_update.moved:
                first, second = self.rows.pop(one, None), self.rows.pop(other, None)
                if first is not None:
                    self.rows[other] = first
                if second is not None and direction == MoveDirectionality.SWAP:
                    self.rows[one] = second

        def apply(self, logits: Tensor) -> Tensor:
            rows = sorted(self.rows)
            if not rows:
                return logits
            requests = [self.rows[row] for row in rows]
            uniform_N = torch.tensor([r.uniforms[len(sampled)] for r, sampled in requests], dtype=torch.float64)
            row_N = torch.tensor(rows, device=logits.device)
            chosen_NV = logits.index_select(0, row_N)
            out_3N = torch.stack(
                [x.double() for x in draw(chosen_NV, uniform_N.to(logits.device), requests[0][0].sampling)]
            )
            forced_NV = torch.full_like(chosen_NV, -torch.inf).scatter_(1, out_3N[0].long()[:, None], 0.0)
            logits.index_copy_(0, row_N, forced_NV)
            for (request, sampled), out in zip(requests, out_3N.T.tolist(), strict=True):
                request.out[len(sampled) :] = [tuple(out)]
            return logits

    return OwnDraws


def extra(number: int) -> dict[str, Any]:
    """A request's extra arguments that point to its `Drawn`."""
    return {KEY: number}
