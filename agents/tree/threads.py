"""A batch that several threads of a process learn from together: each sends its own stretch of the rows through the
model.

Invariant: loss and gradient are those of one pass up to the order of sums, for any loss, and the same bits whatever the
timing: no loss is cut (`chunked_backward`), and what the threads found is added in the order of the rows.

Threads inside a layer wait for each other at its end, and what lies between two layers is computed in one. These wait
once for each pass.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from agents.compiled.threads import allowed, in_threads
from agents.tree.chunked_backward import (
    Kept,
    LossT,
    assemble,
    at_leaves,
    backward,
    cut,
    forward_parts,
    owed,
    with_graph,
)
from agents.tree.ranks import stretch
from agents.tree.token_budget import TokenBudget, fits, trained
from agents.tree.tree import Batch, Forward

WORTH = 512
"""Tokens that pay for a further thread."""
REPEATED = 0.1
"""Tokens that threads may read beside the batch's own, since a stretch repeats the path to its first row; a share. One
long episode is for one thread."""
Model: TypeAlias = Callable[[Batch], Forward]


def forward_in_threads(model: Model, batch: Batch, budget: TokenBudget | int) -> Forward:
    """As `forward_parts`."""
    budget = TokenBudget.of(budget)
    done = _read(torch.no_grad()(model), batch, budget)
    return assemble(batch, done) if done else forward_parts(model, batch, budget)


def graph_in_threads(model: Model, batch: Batch, budget: TokenBudget) -> Kept:
    """As `with_graph`, for `backward_in_threads` to descend from later."""
    return _read(model, batch, budget) or with_graph(model, batch, budget)


def backward_in_threads(
    model: Model,
    batch: Batch,
    loss_fn: Callable[[Forward], LossT],
    budget: TokenBudget | int,
    kept: Kept | None = None,
) -> LossT:
    """As `backward`."""
    budget, parameters = TokenBudget.of(budget), trained(model)
    kept = kept or ([] if parameters is None else _read(model, batch, budget))
    if parameters is None or len(kept) < 2:
        return backward(model, batch, loss_fn, budget, kept)
    leaf, loss = at_leaves(assemble(batch, kept), loss_fn)
    found: list[Grads] = [()] * len(kept)

    def descend(place: int) -> None:
        total = owed(*kept[place], leaf)
        if total.requires_grad:
            found[place] = torch.autograd.grad(total, parameters, allow_unused=True)

    fitted = fits(lambda: in_threads([partial(descend, place) for place in range(len(kept))]))
    kept.clear()
    if not fitted:
        budget.halve(len(batch), int(batch.pos_T.max()) + 1)
        return backward(model, batch, loss_fn, budget)
    for grads in found:
        for parameter, grad in zip(parameters, grads, strict=bool(grads)):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
    return loss


Grads: TypeAlias = tuple[Tensor | None, ...]
"""Of the parameters, by one part; none where it has no graph."""


def _read(model: Model, batch: Batch, budget: TokenBudget) -> Kept:
    """The parts of the batch, one for each thread, with their numbers; none where the batch is for one thread."""
    count = min(allowed() // torch.get_num_threads(), len(batch) // WORTH)  # where PyTorch has several, it uses them
    if count < 2 or len(batch) > budget.tokens:
        return []
    parts = [part for rank in range(count) for part in cut(batch, budget, stretch(batch, rank, count))]
    if sum(len(part.batch) for part in parts) > (1 + REPEATED) * len(batch):
        return []
    done: list[Forward | None] = [None] * len(parts)

    def read(place: int) -> None:
        done[place] = model(parts[place].batch)

    if not fits(lambda: in_threads([partial(read, place) for place in range(len(parts))])):
        budget.halve(len(batch), int(batch.pos_T.max()) + 1)
        return []
    return [(part, numbers) for part, numbers in zip(parts, done, strict=True) if numbers is not None]
