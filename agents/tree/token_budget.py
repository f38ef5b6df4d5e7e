"""The tokens of one forward pass, and what happens when the device's memory does not hold them.

Invariant: work that ran out of memory leaves no trace: gradients are put back, the budget is halved for good, and the
same work is done again on fewer tokens at a time. So nothing is lost and nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from agents.text.errors import ModelError


@dataclass
class TokenBudget:
    """Most tokens of one forward pass."""

    tokens: int
    halved: int = 0
    """How often memory ran out."""

    @classmethod
    def of(cls, budget: TokenBudget | int) -> TokenBudget:
        """A number of tokens as a budget of its own."""
        return budget if isinstance(budget, TokenBudget) else cls(budget)

    def room(self, longest: int) -> int:
        """Tokens of a pass over rows of which the longest path has ``longest``.

        Where memory ran out on shorter episodes, the budget may be less than this one needs: then it has a pass of its
        own. Raises ModelError where the budget that was set is too small for it.
        """
        if longest > self.tokens and not self.halved:
            raise ModelError(
                f"an episode of {longest} tokens does not fit {self.tokens} per forward: raise the token budget"
            )
        return max(self.tokens, longest)

    def halve(self, tokens: int, longest: int) -> None:
        """Makes room after a pass over ``tokens`` ran out of memory; an episode of ``longest`` tokens must still fit.

        Raises ModelError when it would not.
        """
        less = max(tokens // 2, longest)
        if less >= tokens:
            raise ModelError(
                f"out of memory in a pass over one episode of {longest} tokens, which cannot be cut: set "
                "--gradient-checkpointing or --dtype bfloat16, play shorter episodes, or take a smaller model"
            )
        self.tokens, self.halved = min(self.tokens, less), self.halved + 1


def out_of_memory(error: Exception) -> bool:
    """Whether a GPU or the CPU had no memory left."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def trained(model: object) -> list[nn.Parameter] | None:
    """The parameters whose gradients a pass of ``model`` adds to; None where that is not known."""
    return [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else None


def fits(work: Callable[[], object], parameters: Sequence[nn.Parameter] | None = ()) -> bool:
    """Whether memory sufficed for ``work``. If not, the gradients of ``parameters`` are what they were before.

    Where ``parameters`` is None they could not be put back: the error is raised.
    """
    if parameters is None:
        work()
        return True
    before = [None if p.grad is None else p.grad.clone() for p in parameters]
    try:
        work()
        return True
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        # Leaving this block frees what the pass had made.
    for parameter, grad in zip(parameters, before, strict=True):
        parameter.grad = grad
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False
