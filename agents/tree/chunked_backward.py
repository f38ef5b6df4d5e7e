"""Exact gradients of a whole batch under a budget of tokens per forward.

Invariant: loss and gradient do not depend on the budget, for any loss, also one that couples a whole group. The loss
is a function of the numbers in ``Forward`` only. So it is evaluated on the whole batch with those numbers as leaves,
and each part then sends the resulting dL/dlogp and dL/dvalue of the tokens and states that it owns through the model.

A part is an interval of rows together with the ancestors of its first row: closed under ancestors, so its forward is
exact. Ancestors are repeated as context; every action token and every critic prompt is owned by exactly one part.

Parts are laid out on the CPU, so that none makes a GPU wait. A part that does not fit the memory is cut again.

Legend: T tokens of the whole batch, P tokens of a part, S states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from agents.tree.token_budget import TokenBudget, fits, trained
from agents.tree.tree import Batch, Forward, sent


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
    start: int
    stop: int
    """The rows of the whole batch that this part owns. They are its last ones; those before are repeated ancestors."""

    @classmethod
    def whole(cls, batch: Batch) -> TreePart:
        """All of it."""
        return cls(batch, torch.arange(len(batch), device=batch.token_T.device), 0, len(batch))

    def mine(self, x_P: Tensor) -> Tensor:
        """Of a number for each row of this part, those of the rows that it owns."""
        return x_P[x_P.shape[0] - (self.stop - self.start) :]


def cut(batch: Batch, budget: TokenBudget | int, stretch: tuple[int, int] | None = None) -> list[TreePart]:
    """Parts of at most ``budget`` rows each, repeated root paths included, of the batch or a ``stretch`` of its rows.

    Raises ModelError when a single root-to-leaf path is longer than that: a path cannot be cut.
    """
    parts: list[TreePart] = []
    each_part(batch, TokenBudget.of(budget), parts.append, stretch=stretch)
    return parts


def each_part(
    batch: Batch,
    budget: TokenBudget,
    work: Callable[[TreePart], object],
    parameters: Sequence[nn.Parameter] | None = (),
    stretch: tuple[int, int] | None = None,
) -> None:
    """Does ``work``, which may add to the gradients of ``parameters``, on all parts of the batch in turn, or on those
    of a ``stretch`` of its rows: (first, one past the last).

    Where memory runs out, the budget is halved and the rows of that part are cut again. Raises ModelError like ``cut``.
    """
    total = len(batch)
    start, end = stretch or (0, total)
    if (start, end) == (0, total) and total <= budget.tokens:
        whole = TreePart.whole(batch)
        if fits(lambda: work(whole), parameters):
            return
        budget.halve(total, int(batch.pos_T.max()) + 1)
    rows = batch.to("cpu")
    longest = int(rows.pos_T.max()) + 1
    while start < end:
        part = _part(batch, rows, start, _stop(rows.pos_T[:end], start, budget.room(longest)))
        if fits(partial(work, part), parameters):
            start = part.stop
        else:
            budget.halve(len(part.batch), longest)


def _stop(pos_T: Tensor, start: int, max_tokens: int) -> int:
    """Where a part that begins at ``start`` ends."""
    total = pos_T.numel()
    stop = min(total, start + max_tokens - int(pos_T[start]))
    if stop < total:
        # The next part repeats the root path of its first row: begin it where that is short, at best at a root.
        first = start + 1 + (stop - start) // 2
        near_P = pos_T[first : stop + 1].flip(0)
        stop -= int(near_P.argmin())
    return stop


def _part(batch: Batch, rows: Batch, start: int, stop: int) -> TreePart:
    """The rows ``start`` to ``stop``; ``rows`` is ``batch`` on the CPU, where the part is laid out."""
    path_P = torch.nonzero(rows.end_T[:start] > start).squeeze(1)
    row_P = torch.cat([path_P, torch.arange(start, stop)])
    own_P = row_P >= start
    place_T = torch.full((len(rows) + 1,), -1)  # the last entry answers row -1
    place_T[row_P] = torch.arange(row_P.numel())
    critic_S = place_T[rows.critic_S]
    piece = replace(
        rows,
        token_T=rows.token_T[row_P],
        parent_T=place_T[rows.parent_T[row_P]],
        pos_T=rows.pos_T[row_P],
        end_T=torch.searchsorted(row_P, rows.end_T[row_P]),
        action_T=torch.where(own_P, rows.action_T[row_P], -1),
        old_logp_T=rows.old_logp_T[row_P],
        ref_logp_T=None if rows.ref_logp_T is None else rows.ref_logp_T[row_P],
        last_S=place_T[rows.last_S],
        critic_S=torch.where((rows.critic_S >= start) & (rows.critic_S < stop), critic_S, -1),
    )
    return TreePart(piece.to(batch.token_T.device), sent(row_P, batch.token_T.device), start, stop)


@torch.no_grad()
def forward_parts(model: Callable[[Batch], Forward], batch: Batch, budget: TokenBudget | int) -> Forward:
    """``model(batch)`` without gradient, part by part."""
    done: list[tuple[TreePart, Forward]] = []
    each_part(batch, TokenBudget.of(budget), lambda part: done.append((part, model(part.batch))))
    return done[0][1] if len(done) == 1 else assemble(batch, done)


Kept: TypeAlias = list[tuple[TreePart, Forward]]
"""Parts that make up a batch, each with its numbers and their graph; none where nothing was kept."""


def with_graph(model: Callable[[Batch], Forward], batch: Batch, budget: TokenBudget) -> Kept:
    """``model(batch)`` with its graph, for `backward` to descend from later; nothing where it takes several passes."""
    kept: Kept = []
    if len(batch) <= budget.tokens and not fits(lambda: kept.append((TreePart.whole(batch), model(batch)))):
        budget.halve(len(batch), int(batch.pos_T.max()) + 1)
    return kept


@torch.no_grad()
def critic_hidden(hidden: Callable[[Batch], Tensor], batch: Batch, budget: TokenBudget | int) -> tuple[Tensor, Tensor]:
    """(hidden_ND, state_N): ``hidden`` at the end of each critic prompt, in the order of the states. No gradient."""
    read: list[tuple[Tensor, Tensor]] = []
    each_part(batch, TokenBudget.of(budget), lambda part: read.append(part.batch.at_prompts(hidden(part.batch))))
    hidden_, state_ = zip(*read, strict=True)
    state_N, order_N = torch.cat(state_).sort()
    return torch.cat(hidden_)[order_N], state_N


def assemble(batch: Batch, done: Sequence[tuple[TreePart, Forward]]) -> Forward:
    """The numbers of the parts as those of the whole batch; 0 in rows that none of them owns."""
    first = done[0][1]
    logp_T = first.logp_T.new_zeros(len(batch))
    entropy_T, value_S, read_SD = torch.zeros_like(logp_T), None, None
    value_T = None if first.value_T is None else first.value_T.new_zeros(len(batch))
    for part, out in done:
        own = slice(part.start, part.stop)
        logp_T[own], entropy_T[own] = part.mine(out.logp_T), part.mine(out.entropy_T)
        if out.value_S is not None:  # 0 for the states that another part owns
            value_S = out.value_S if value_S is None else value_S + out.value_S
        if out.read_SD is not None:
            read_SD = out.read_SD if read_SD is None else read_SD + out.read_SD
        if value_T is not None and out.value_T is not None:
            value_T[own] = part.mine(out.value_T)
    return Forward(logp_T, entropy_T, value_S, value_T, read_SD)


def backward(
    model: Callable[[Batch], Forward],
    batch: Batch,
    loss_fn: Callable[[Forward], LossT],
    budget: TokenBudget | int,
    kept: Kept | None = None,
) -> LossT:
    """Adds the gradient of ``loss_fn(model(batch)).total`` to the parameters and returns the loss.

    ``loss_fn`` may depend on the parameters through its argument only. ``kept`` is what `with_graph` gave for the
    present parameters, where that was asked for; it is used up. Where memory runs out, ``budget`` is halved and what
    failed is repeated, if the model is a module.
    """
    budget, parameters, kept = TokenBudget.of(budget), trained(model), kept or []
    if len(batch) <= budget.tokens:
        whole: list[LossT] = []

        def at_once() -> None:
            loss = loss_fn(kept.pop()[1] if kept else model(batch))
            loss.total.backward()
            whole.append(loss)

        if fits(at_once, parameters):
            return whole[0]
        budget.halve(len(batch), int(batch.pos_T.max()) + 1)
    leaf, loss = at_leaves(forward_parts(model, batch, budget), loss_fn)
    each_part(batch, budget, lambda part: descend(part, model(part.batch), leaf), parameters)
    return loss


def at_leaves(numbers: Forward, loss_fn: Callable[[Forward], LossT]) -> tuple[Forward, LossT]:
    """(the same numbers as leaves, which have the gradient of the loss; the loss)."""
    leaf = numbers.detach()
    for leaf_x in (leaf.logp_T, leaf.value_S, leaf.value_T):
        if leaf_x is not None:
            leaf_x.requires_grad_()
    loss = loss_fn(leaf)
    loss.total.backward()
    return leaf, loss


def descend(part: TreePart, new: Forward, leaf: Forward) -> None:
    """Adds what the numbers owned by ``part`` contribute to the gradient of the whole loss."""
    total = owed(part, new, leaf)
    if total.requires_grad:
        total.backward()


def owed(part: TreePart, new: Forward, leaf: Forward) -> Tensor:
    """What has that contribution as its gradient: ``new`` are the numbers of ``part`` with their graph, ``leaf`` those
    of the whole batch with the gradient of the loss."""
    total = new.logp_T.new_zeros(())
    for mine, whole in ((new.logp_T, leaf.logp_T), (new.value_T, leaf.value_T)):
        if mine is not None and whole is not None and whole.grad is not None:
            total = total + (part.mine(mine) * whole.grad[part.start : part.stop]).sum()
    if leaf.value_S is not None and leaf.value_S.grad is not None and new.value_S is not None:
        total = total + (new.value_S * leaf.value_S.grad).sum()
    return total
