"""A batch cut into pieces, with a forward pass that looks its numbers up: what a budget of tokens does to a loss."""

from typing import Any

from algorithm_trees import World
from torch import Tensor

from agents.tree import Batch, Forward, Node
from agents.tree.chunked_backward import backward, cut, forward_parts
from algorithms import Algorithm


def in_pieces(w: World, algorithm: Algorithm[Any], trees: list[Node], pieces: int) -> tuple[float, Tensor]:
    """Loss and gradient of every token's log-probability through exactly ``pieces`` parts."""
    batch = w.batch(trees, critic=False)
    longest = int(batch.pos_T.max()) + 1
    budget = next(b for b in range(len(batch), longest - 1, -1) if len(cut(batch, b)) >= pieces)
    assert len(cut(batch, budget)) == pieces
    logp, value = w.numbers()
    passes = 0

    def model(part: Batch) -> Forward:
        nonlocal passes
        passes += 1
        return w.forward(part, logp, value)

    old = forward_parts(model, batch, budget)
    credit = algorithm.credit(batch, old)
    loss = backward(model, batch, lambda new: algorithm.loss(batch, new, credit), budget)
    assert passes >= 2 * pieces
    return float(loss.total.detach()), logp.grad
