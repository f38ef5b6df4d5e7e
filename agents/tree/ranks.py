"""A batch that several processes learn from together: each sends its own stretch of the rows through the model.

Invariant: every rank ends with the same loss and the same gradient, bit by bit, and they are those of one process up to
the order of sums. This holds for any loss, because no loss is cut: the numbers of all ranks are put together, and every
rank computes the loss of the whole batch from them.

Legend: T tokens of the whole batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from agents.text.errors import ModelError
from agents.tree.chunked_backward import LossT, TreePart, assemble, at_leaves, cut, descend, each_part
from agents.tree.token_budget import TokenBudget, fits, trained
from agents.tree.tree import Batch, Forward

NEAR = 8
"""A cut may be this part of a rank's share away from where the shares would be equal, to be near a root."""


class Ranks:
    """This process among those of torch's process group.

    ``lockstep``: every pass needs all ranks, since each holds a part of the weights only. Then all make the same number
    of passes, and memory that runs out ends the run: nobody could repeat a pass alone.
    """

    def __init__(self, *, lockstep: bool) -> None:
        self.rank, self.size, self.lockstep = dist.get_rank(), dist.get_world_size(), lockstep

    # -- passes: as `forward_parts` and `backward` of one process ------------------------------------------------

    @torch.no_grad()
    def forward(self, model: Callable[[Batch], Forward], batch: Batch, budget: TokenBudget | int) -> Forward:
        """``model(batch)`` without gradient."""
        done: list[tuple[TreePart, Forward]] = []
        self._each(
            batch,
            TokenBudget.of(budget),
            lambda part: done.append((part, model(part.batch))),
            lambda part: model(part.batch),
        )
        return self._whole(batch, done)

    def backward(
        self,
        model: Callable[[Batch], Forward],
        batch: Batch,
        loss_fn: Callable[[Forward], LossT],
        budget: TokenBudget | int,
    ) -> LossT:
        """Adds the gradient of ``loss_fn(model(batch)).total`` to the parameters of every rank and returns the loss."""
        budget, parameters = TokenBudget.of(budget), trained(model)
        if parameters is None:
            raise TypeError("ranks add up the gradients of a module's parameters, and this model is none")
        before = [p.grad for p in parameters]
        for parameter in parameters:
            parameter.grad = None
        # What fits one pass needs no second one for the gradient: its graph is kept.
        kept = self._with_graph(model, batch, budget, parameters)
        numbers = self._whole(batch, kept) if kept else self.forward(model, batch, budget)
        leaf, loss = at_leaves(numbers, loss_fn)
        if self.lockstep:  # a loss without values, say, must not leave one rank's layers without a gradient to pass on
            leaf = _graded(leaf)
        if not (kept and self._finished(kept, leaf, budget, parameters)):
            self._each(
                batch,
                budget,
                lambda part: descend(part, model(part.batch), leaf),
                lambda part: descend(part, model(part.batch), _graded(leaf.detach())),
                parameters,
            )
        self._add_up(parameters)
        for parameter, grad in zip(parameters, before, strict=True):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
        return loss

    # -- agreement -----------------------------------------------------------------------------------------------

    def most(self, numbers: Sequence[int]) -> list[int]:
        """The largest of each over the ranks."""
        x = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(x, dist.ReduceOp.MAX)
        return [int(n) for n in x.tolist()]

    def agree(self, number: int) -> bool:
        """Whether all ranks have the same number, of 63 bits."""
        high, low = self.most([number, -number])
        return high == -low

    # -- parts ---------------------------------------------------------------------------------------------------

    def _with_graph(
        self,
        model: Callable[[Batch], Forward],
        batch: Batch,
        budget: TokenBudget,
        parameters: Sequence[nn.Parameter],
    ) -> list[tuple[TreePart, Forward]]:
        """This rank's stretch and its numbers with their graph; nothing where it takes several passes."""
        parts, kept = cut(batch, budget, stretch(batch, self.rank, self.size)), list[tuple[TreePart, Forward]]()
        if (self.most([len(parts)])[0] if self.lockstep else len(parts)) == 1:
            part = parts[0]
            self._fits(lambda: kept.append((part, model(part.batch))), part, budget, parameters)
        return kept

    def _finished(
        self,
        kept: list[tuple[TreePart, Forward]],
        leaf: Forward,
        budget: TokenBudget,
        parameters: Sequence[nn.Parameter],
    ) -> bool:
        """Whether memory sufficed for the gradient of the pass that was kept. Its graph is freed in any case."""
        part, new = kept.pop()
        return self._fits(lambda: descend(part, new, leaf), part, budget, parameters)

    def _fits(
        self, work: Callable[[], object], part: TreePart, budget: TokenBudget, parameters: Sequence[nn.Parameter]
    ) -> bool:
        if fits(work, None if self.lockstep else parameters):
            return True
        budget.halve(len(part.batch), int(part.batch.pos_T.max()) + 1)
        return False

    def _each(
        self,
        batch: Batch,
        budget: TokenBudget,
        work: Callable[[TreePart], object],
        idle: Callable[[TreePart], object],
        parameters: Sequence[nn.Parameter] | None = (),
    ) -> None:
        """Does ``work`` on the parts of this rank's stretch. In lockstep, passes that other ranks still need follow:
        ``idle``, which must add nothing."""
        if not self.lockstep:
            each_part(batch, budget, work, parameters, stretch(batch, self.rank, self.size))
            return
        parts = cut(batch, budget, stretch(batch, self.rank, self.size))
        passes = self.most([len(parts)])[0]
        for part in parts:
            work(part)
        for _ in range(passes - len(parts)):
            idle(parts[-1])

    # -- sums over the ranks -------------------------------------------------------------------------------------

    @torch.no_grad()
    def _whole(self, batch: Batch, done: Sequence[tuple[TreePart, Forward]]) -> Forward:
        """The numbers of all ranks: each is 0 but on the one that owns it."""
        mine = assemble(batch, done)
        columns = {f.name: getattr(mine, f.name) for f in fields(mine)}
        shapes = [() if x is None else (*x.shape, 1)[:2] for x in columns.values()]
        longest = self.most([n for shape in shapes for n in (shape or (0, 0))])
        whole: dict[str, Any] = {}
        for (name, x), rows, width in zip(columns.items(), longest[::2], longest[1::2], strict=True):
            if not rows:
                continue
            if x is None:  # no state of this rank's stretch has a critic prompt
                x = mine.logp_T.new_zeros(rows if width == 1 else (rows, width))
            total = x.detach().to(torch.promote_types(x.dtype, torch.float32), copy=True)
            dist.all_reduce(total)
            whole[name] = total.to(x.dtype)
        return replace(mine, **whole)

    def _add_up(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replaces every gradient by its sum over the ranks. One that no rank has stays None."""
        there = self.most([p.grad is not None for p in parameters])
        some = [p for p, has in zip(parameters, there, strict=True) if has]
        if not some:
            return
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in some])
        dist.all_reduce(flat)
        for parameter, grad in zip(some, flat.split([p.numel() for p in some]), strict=True):
            parameter.grad = grad.view_as(parameter).to(parameter.dtype)


def stretch(batch: Batch, rank: int, size: int) -> tuple[int, int]:
    """The rows that a rank owns: (first, one past the last).

    Shares are equal but for what a cut near a root saves: a stretch that begins inside a tree repeats the path to its
    first row. Raises ModelError for a batch of fewer rows than ranks.
    """
    pos_T, total = batch.pos_T.cpu(), len(batch)
    if total < size:
        raise ModelError(f"{size} ranks cannot share {total} tokens: name fewer with --learner")
    room = total // (NEAR * size)

    def end(rank: int) -> int:
        if rank in (0, size):
            return total if rank else 0
        middle = total * rank // size
        near_T = torch.arange(middle - room, middle + room + 1)
        return int(near_T[(pos_T[near_T] + (near_T - middle).abs()).argmin()])

    return end(rank), end(rank + 1)


def _graded(leaf: Forward) -> Forward:
    """``leaf`` itself, with a gradient of 0 where it has none."""
    for x in (leaf.logp_T, leaf.value_S, leaf.value_T):
        if x is not None and x.grad is None:
            x.grad = torch.zeros_like(x)
    return leaf
