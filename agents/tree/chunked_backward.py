"""Exact gradients of a whole batch under a budget of tokens per forward.

Invariant: loss and gradient do not depend on the budget, for any loss, also one that couples a whole group. The loss
is a function of the numbers in ``Forward`` only. So it is evaluated on the whole batch with those numbers as leaves,
and each part then sends the resulting dL/dlogp and dL/dvalue of the tokens and states that it owns through the model.

A part is an interval of rows together with the ancestors of its first row: closed under ancestors, so its forward is
exact. Ancestors are repeated as context; every action token and every critic prompt is owned by exactly one part.

Legend: T tokens of the whole batch, P tokens of a part, S states.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from agents.text.errors import ModelError
from agents.tree.tree import Batch, Forward


class HasTotal(Protocol):
    """A loss: ``total`` is the scalar to descend."""

    @property
    def total(self) -> Tensor: ...


LossT = TypeVar("LossT", bound=HasTotal)


@dataclass(frozen=True)
class TreePart:
    """A piece of a batch that fits the budget."""

    batch: Batch
    """Rows of this part; actions, states and leaves keep the numbers of the whole batch."""
    row_P: Tensor
    """Row of the whole batch that each row of this part is."""
    own_P: Tensor
    """True where this part owns the row; False for a repeated ancestor."""


def cut(batch: Batch, max_tokens: int) -> list[TreePart]:
    """Parts of at most ``max_tokens`` rows each, repeated root paths included.

    Raises ModelError when a single root-to-leaf path is longer than that: a path cannot be cut.
    """
    total = len(batch)
    if total <= max_tokens:
        everything = torch.arange(total, device=batch.token_T.device)
        return [TreePart(batch, everything, torch.ones_like(everything, dtype=torch.bool))]
    pos_T = batch.pos_T.cpu()
    longest = int(pos_T.max()) + 1
    if longest > max_tokens:
        raise ModelError(
            f"an episode of {longest} tokens does not fit {max_tokens} per forward: raise the token budget"
        )
    parts, start = [], 0
    while start < total:
        stop = min(total, start + max_tokens - int(pos_T[start]))
        if stop < total:
            # The next part repeats the root path of its first row: begin it where that is short, at best at a root.
            first = start + 1 + (stop - start) // 2
            near_P = pos_T[first : stop + 1].flip(0)
            stop -= int(near_P.argmin())
        parts.append(_part(batch, start, stop))
        start = stop
    return parts


def _part(batch: Batch, start: int, stop: int) -> TreePart:
    device = batch.token_T.device
    path_P = torch.nonzero(batch.end_T[:start] > start).squeeze(1)
    row_P = torch.cat([path_P, torch.arange(start, stop, device=device)])
    own_P = row_P >= start
    place_T = torch.full((len(batch) + 1,), -1, device=device)  # the last entry answers row -1
    place_T[row_P] = torch.arange(row_P.numel(), device=device)
    critic_S = place_T[batch.critic_S]
    critic_S = torch.where((batch.critic_S >= start) & (batch.critic_S < stop), critic_S, -1)
    piece = replace(
        batch,
        token_T=batch.token_T[row_P],
        parent_T=place_T[batch.parent_T[row_P]],
        pos_T=batch.pos_T[row_P],
        end_T=torch.searchsorted(row_P, batch.end_T[row_P]),
        action_T=torch.where(own_P, batch.action_T[row_P], -1),
        old_logp_T=batch.old_logp_T[row_P],
        ref_logp_T=None if batch.ref_logp_T is None else batch.ref_logp_T[row_P],
        last_S=place_T[batch.last_S],
        critic_S=critic_S,
    )
    return TreePart(piece, row_P, own_P)


@torch.no_grad()
def forward_parts(model: Callable[[Batch], Forward], batch: Batch, max_tokens: int) -> Forward:
    """``model(batch)`` without gradient, part by part."""
    parts = cut(batch, max_tokens)
    if len(parts) == 1:
        return model(batch)
    return _assemble(batch, parts, [model(part.batch) for part in parts])


@torch.no_grad()
def critic_hidden(hidden: Callable[[Batch], Tensor], batch: Batch, max_tokens: int) -> tuple[Tensor, Tensor]:
    """(hidden_ND, state_N): ``hidden`` at the end of each critic prompt, in the order of the states. No gradient."""
    result = (part.batch.at_prompts(hidden(part.batch)) for part in cut(batch, max_tokens))
    hidden_, state_ = zip(*result, strict=True)
    state_N, order_N = torch.cat(state_).sort()
    return torch.cat(hidden_)[order_N], state_N


def _assemble(batch: Batch, parts: list[TreePart], outs: list[Forward]) -> Forward:
    logp_T = outs[0].logp_T.new_zeros(len(batch))
    entropy_T, value_S, read_SD = torch.zeros_like(logp_T), None, None
    value_T = None if outs[0].value_T is None else outs[0].value_T.new_zeros(len(batch))
    for part, out in zip(parts, outs, strict=True):
        mine_P = part.row_P[part.own_P]
        logp_T[mine_P] = out.logp_T[part.own_P]
        entropy_T[mine_P] = out.entropy_T[part.own_P]
        if out.value_S is not None:  # 0 for the states that another part owns
            value_S = out.value_S if value_S is None else value_S + out.value_S
        if out.read_SD is not None:
            read_SD = out.read_SD if read_SD is None else read_SD + out.read_SD
        if value_T is not None and out.value_T is not None:
            value_T[mine_P] = out.value_T[part.own_P]
    return Forward(logp_T, entropy_T, value_S, value_T, read_SD)


def backward(
    model: Callable[[Batch], Forward],
    batch: Batch,
    loss_fn: Callable[[Forward], LossT],
    max_tokens: int,
    old: Forward | None = None,
) -> LossT:
    """Adds the gradient of ``loss_fn(model(batch)).total`` to the parameters and returns the loss.

    ``loss_fn`` may depend on the parameters through its argument only. ``old`` is ``model(batch)`` computed with the
    present parameters, where there is one: a batch that must be cut then needs no forward without gradient.
    """
    parts = cut(batch, max_tokens)
    if len(parts) == 1:
        loss = loss_fn(model(batch))
        loss.total.backward()
        return loss
    if old is None:
        with torch.no_grad():
            old = _assemble(batch, parts, [model(part.batch) for part in parts])
    leaf = old.detach()
    for leaf_x in (leaf.logp_T, leaf.value_S, leaf.value_T):
        if leaf_x is not None:
            leaf_x.requires_grad_()
    loss = loss_fn(leaf)
    loss.total.backward()
    for part in parts:
        surrogate = _surrogate(part, model(part.batch), leaf)
        if surrogate.requires_grad:
            surrogate.backward()
    return loss


def _surrogate(part: TreePart, new: Forward, leaf: Forward) -> Tensor:
    """What has, in the parameters, the gradient that the numbers owned by ``part`` contribute to the whole loss."""
    total = new.logp_T.new_zeros(())
    for mine, whole in ((new.logp_T, leaf.logp_T), (new.value_T, leaf.value_T)):
        if mine is not None and whole is not None and whole.grad is not None:
            total = total + (mine * whole.grad[part.row_P])[part.own_P].sum()
    if leaf.value_S is not None and leaf.value_S.grad is not None and new.value_S is not None:
        total = total + (new.value_S * leaf.value_S.grad).sum()
    return total
