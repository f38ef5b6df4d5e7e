"""Drawing tokens by inverse CDF.

Invariant: a token depends on its own logits and its own uniform number only, so the batch does not matter; and a token
of probability 0 is never drawn. Shapes: N draws, V vocabulary.
"""

import torch
from torch import Tensor

from agents.engine.base import SamplingSettings


def draw(logits_NV: Tensor, uniform_N: Tensor, sampling: SamplingSettings) -> tuple[Tensor, Tensor, Tensor]:
    """Token, log-probability and entropy (nats) of N draws, each of shape (N,).

    With p = softmax(logits / temperature), truncated to ``top_p`` and ``top_k``, the token is the first whose cumulated
    p exceeds u * sum(p), for the ``uniform_N`` u in [0, 1) as float64; or argmax p when greedy, without truncation. The
    probabilities are float32, their sums float64.
    """
    scaled_NV = logits_NV.float()
    if sampling.temperature != 1.0:
        scaled_NV = scaled_NV / sampling.temperature
    logp_NV = scaled_NV.log_softmax(-1)
    if not sampling.greedy and (sampling.top_p < 1 or sampling.top_k):
        logp_NV = truncated(logp_NV, sampling.top_p, sampling.top_k)
    p_NV = logp_NV.exp()
    if sampling.greedy:
        token_N1 = logp_NV.argmax(-1, keepdim=True)
    else:
        cdf_NV = p_NV.cumsum(-1, dtype=torch.float64)
        token_N1 = torch.searchsorted(cdf_NV, uniform_N[:, None] * cdf_NV[:, -1:], right=True)
    logp_N = logp_NV.gather(-1, token_N1)[:, 0]
    entropy_N = -(p_NV * logp_NV.clamp_min_(torch.finfo(torch.float32).min)).sum(-1)
    return token_N1[:, 0], logp_N, entropy_N


def truncated(logp_NV: Tensor, top_p: float, top_k: int) -> Tensor:
    """Log-probabilities of the ``top_k`` (0: all) most probable tokens, cut after the first that reach ``top_p``.

    Of tokens that are equally probable the first ones stay; the most probable token always does.
    """
    best_NV, place_NV = logp_NV.sort(dim=-1, descending=True, stable=True)
    p_NV = best_NV.double().exp()
    kept_NV = p_NV.cumsum(-1) - p_NV < top_p
    if top_k:
        kept_NV[:, top_k:] = False
    best_NV = torch.where(kept_NV, best_NV, -torch.inf)
    return torch.empty_like(logp_NV).scatter_(-1, place_NV, best_NV).log_softmax(-1)
