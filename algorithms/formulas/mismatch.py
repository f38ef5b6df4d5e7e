"""The engine that samples and the trainer that learns disagree in their log-probabilities: how far, and what to do.

Invariant: pure functions of two log-probabilities of the same sampled tokens under the same weights, the trainer's
before the first update and the engine's. Where they agree every weight is 1, and a corrected gradient is the plain one.

    r = pi_trainer / pi_engine;  E over what the engine samples of r = 1, unless it samples from something else

Legend of the shape suffixes: T tokens, A actions, L leaves = episodes.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import torch

from agents.tree import Batch, Forward, Tensor
from algorithms.formulas.maths import bounded, weighted_mean


class Correction(StrEnum):
    """What a token's gradient is multiplied by: a ratio of its own or of its whole episode, bounded or masked.

    Truncated: min(r, high) [TIS]. Masked: r where low <= r <= high, else 0, so that what is far off teaches nothing.
    """

    NONE = "none"
    TOKEN_TRUNCATE = "token_truncate"
    TOKEN_MASK = "token_mask"
    SEQUENCE_TRUNCATE = "sequence_truncate"
    SEQUENCE_MASK = "sequence_mask"


class Masked(StrEnum):
    """What happens to the tokens or episodes that a mask takes out.

    Left out: they are in no mean, as if they had not been sampled; an episode that is masked whole is out as one that
    broke is, of its group and of the critic's lessons too. Counted: they weigh 0 and stay in the denominators, so
    that the gradient shrinks with their share.
    """

    LEFT_OUT = "left_out"
    COUNTED = "counted"


def importance_weight(log_ratio: Tensor, mask: bool, low: float, high: float) -> Tensor:
    """min(r, high), or r where low <= r <= high and 0 elsewhere; r = exp of the log-ratio clamped to +-20."""
    ratio = bounded(log_ratio).exp()
    return torch.where((ratio >= low) & (ratio <= high), ratio, 0) if mask else ratio.clamp(max=high)


def correction_weight(
    batch: Batch, trainer_logp_T: Tensor, engine_logp_T: Tensor, how: Correction, low: float = 0.0, high: float = 2.0
) -> Tensor:
    """weight_T: what each sampled token's gradient is multiplied by; 0 where nothing was sampled. No gradient.

    With a ratio per episode, a token that several episodes share has the mean of their weights.
    """
    mask_T = batch.action_T >= 0
    if how == Correction.NONE:
        return mask_T.double()
    delta_T = torch.where(mask_T, trainer_logp_T.detach() - engine_logp_T, 0).double()
    if how in (Correction.TOKEN_TRUNCATE, Correction.TOKEN_MASK):
        return importance_weight(delta_T, how == Correction.TOKEN_MASK, low, high) * mask_T
    return batch.to_tokens(batch.below(_episode_weight(batch, delta_T, how, low, high)))


def _episode_weight(batch: Batch, delta_T: Tensor, how: Correction, low: float, high: float) -> Tensor:
    delta_L = batch.per_episode(batch.per_action(delta_T))
    return importance_weight(delta_L, how == Correction.SEQUENCE_MASK, low, high)


def without_masked(
    batch: Batch, trainer_logp_T: Tensor, engine_logp_T: Tensor, how: Correction, low: float, high: float
) -> Batch:
    """The batch in which what the mask ``how`` takes out was not sampled, or broke; the same for other corrections."""
    sampled_T = batch.action_T >= 0
    delta_T = torch.where(sampled_T, trainer_logp_T.detach() - engine_logp_T, 0).double()
    if how == Correction.TOKEN_MASK:
        kept_T = importance_weight(delta_T, True, low, high) > 0
        return replace(batch, action_T=torch.where(kept_T, batch.action_T, -1))
    if how == Correction.SEQUENCE_MASK:
        return replace(batch, fault_L=batch.fault_L | (_episode_weight(batch, delta_T, how, low, high) == 0))
    return batch


def corrected(new: Forward, weight_T: Tensor) -> Forward:
    """The same numbers, through which each token's gradient goes ``weight_T`` times.

    So any loss of the log-probabilities is corrected without knowing of it; what it reports is not weighted.
    """
    fixed_T = new.logp_T.detach()
    return replace(new, logp_T=fixed_T + weight_T.to(fixed_T.dtype) * (new.logp_T - fixed_T))


def mismatch_stats(
    batch: Batch, trainer_logp_T: Tensor, engine_logp_T: Tensor, low: float = 0.0, high: float = 2.0
) -> dict[str, float]:
    """Plain numbers over the sampled tokens, before any correction and without the clamp of the log-ratio.

    ``k1`` and ``k3`` estimate KL(engine || trainer); ``kept_mass`` is the mean of r, and ``kept_mass_error`` its
    standard error; ``effective_sample`` is (sum r)^2 / (n sum r^2), 1 where all weigh the same; ``outside`` the share
    of tokens with r < low or r > high.
    """
    x = (trainer_logp_T.detach() - engine_logp_T)[batch.action_T >= 0].double()
    ratio = bounded(x).exp()
    n = x.numel()
    one = torch.ones_like(x)
    spread = ratio.std() if n > 1 else torch.zeros(())
    numbers = {
        "mean_abs": weighted_mean(x.abs(), one),
        "max_abs": x.abs().max() if n else torch.zeros(()),
        "k1": weighted_mean(-x, one),
        "k3": weighted_mean(ratio - 1 - bounded(x), one),
        "kept_mass": ratio.mean() if n else torch.ones(()),
        "kept_mass_error": spread / max(n, 1) ** 0.5,
        "effective_sample": ratio.sum() ** 2 / (n * ratio.square().sum()) if n else torch.ones(()),
        "outside": weighted_mean(((ratio < low) | (ratio > high)).double(), one),
    }
    return {f"mismatch_{name}": float(number) for name, number in numbers.items()}


def sampling_warning(top_p: float, top_k: int, stats: dict[str, float]) -> str | None:
    """One line where the engine samples from less than the whole distribution, so that no ratio is right; else None.

    It is said when a setting cuts the distribution (``top_k`` 0 or less is off), and when r does not average 1: by more
    than 0.01 and four standard errors.
    """
    mass, error = stats["mismatch_kept_mass"], stats["mismatch_kept_mass_error"]
    settings = [f"top_p {top_p}"] * (top_p < 1) + [f"top_k {top_k}"] * (top_k > 0)
    result = f"the trainer gives what was sampled {mass:.3f} times the engine's probability on average"
    if settings:
        return f"{' and '.join(settings)} bias the ratio ({result}): train with top_p 1 and top_k 0"
    if abs(mass - 1) > max(0.01, 4 * error):
        return f"{result}, where 1 is right: engine and trainer differ in weights, temperature or sampling"
    return None
