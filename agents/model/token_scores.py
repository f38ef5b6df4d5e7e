"""Log-probabilities of tokens, and the entropies of the distributions that they come from, by logits.

Legend: N rows, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from agents.compiled import layers

_ENTROPY_ROWS = 64
"""Rows at a time: what is thrown away again should fit a cache."""


def token_scores(logits_NV: Tensor, token_N: Tensor, *, compiled: bool = False) -> tuple[Tensor, Tensor]:
    """(log-probability of each token [N], entropy in nats [N], which carries no gradient).

    ``compiled`` in C where it can be: then no other array of the logits' size is made but their gradient.
    """
    if compiled and layers.fits(logits_NV):
        logp_N, entropy_N = _Scored.apply(logits_NV, token_N)
        return logp_N, entropy_N
    logp_NV = torch.log_softmax(logits_NV, dim=-1)
    with torch.no_grad():
        entropy_N = torch.cat([_entropy(part_NV) for part_NV in logp_NV.split(_ENTROPY_ROWS)])
    return logp_NV.gather(1, token_N[:, None]).squeeze(1), entropy_N


def _entropy(logp_NV: Tensor) -> Tensor:
    """In nats. Normalised once more: a rounding error of the log-softmax would otherwise count H - 1 times.

    The clamp only matters for logits of -inf: 0 * -inf is NaN.
    """
    p_NV = logp_NV.exp()
    total_N = p_NV.sum(-1)
    return total_N.log() - p_NV.mul_(logp_NV.clamp_min(-1e5)).sum(-1) / total_N


class _Scored(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, token_N: Tensor) -> tuple[Tensor, Tensor]:
        logp_N, entropy_N, norm_N = layers.score(logits_NV, token_N)
        ctx.save_for_backward(logits_NV, token_N, norm_N)
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor, _: Tensor) -> tuple[Tensor, None]:
        logits_NV, token_N, norm_N = ctx.saved_tensors
        return layers.score_backward(grad_N, logits_NV, token_N, norm_N), None
