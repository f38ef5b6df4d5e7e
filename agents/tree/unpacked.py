"""A batch taken apart: every turn and every value becomes a row of tokens of its own, its whole prefix repeated.

Invariant: the numbers gathered from the rows are those of one pass over the whole batch, and so is the gradient; only
what goes through the model differs. The rows are trees without a fork, so a budget of tokens holds for them too.

Legend: T tokens of the whole batch, U tokens of the rows, R rows, A actions, S states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agents.tree.chunked_backward import LossT, backward, forward_parts
from agents.tree.token_budget import TokenBudget
from agents.tree.tree import Batch, Forward


@dataclass(frozen=True)
class PerTurn:
    """The rows, and where the numbers of the whole batch are found in them."""

    rows: Batch
    """Only what a forward pass reads is laid out again; the rest is that of the whole batch."""
    source_U: Tensor
    """Row of the whole batch that each token is a copy of."""
    tokens: int
    """T."""

    @classmethod
    def of(cls, batch: Batch) -> PerTurn:
        """2 n + 1 rows for a chain of n turns with critic prompts: prefix and action, prefix and prompt."""
        asked_S = batch.critic_S >= 0
        tips = torch.cat([batch.final_tokens(), batch.critic_S[asked_S]])
        paths = [torch.nonzero(batch.end_T[: int(tip) + 1] > tip).squeeze(1) for tip in tips]
        source_U = torch.cat([*paths, tips[:0]])
        length_R = torch.tensor([path.numel() for path in paths], dtype=torch.long, device=tips.device)
        end_R = length_R.cumsum(0)
        place_U = torch.arange(source_U.numel(), device=tips.device)
        row_U = torch.repeat_interleave(torch.arange(len(paths), device=tips.device), length_R)
        pos_U = place_U - (end_R - length_R)[row_U]
        critic_S = batch.critic_S.masked_scatter(asked_S, end_R[batch.state_A.numel() :] - 1)
        prompt_S = batch.pos_T[batch.critic_S] - batch.pos_T[batch.last_S]
        rows = replace(
            batch,
            token_T=batch.token_T[source_U],
            parent_T=torch.where(pos_U > 0, place_U - 1, -1),
            pos_T=pos_U,
            end_T=end_R[row_U],
            # The first rows are those of the actions, in their order; what was said before is read in them again.
            action_T=torch.where(batch.action_T[source_U] == row_U, row_U, -1),
            old_logp_T=batch.old_logp_T[source_U],
            ref_logp_T=None,
            last_S=torch.where(asked_S, critic_S - prompt_S, -1),  # a state without a prompt ends no row
            critic_S=critic_S,
        )
        return cls(rows, source_U, len(batch))

    def gather(self, out: Forward) -> Forward:
        """What a pass over the rows computed, as the numbers of the whole batch."""
        said_U = self.rows.action_rows
        zero_T = out.logp_T.new_zeros(self.tokens)
        logp_T, entropy_T = (
            zero_T.index_add(0, self.source_U[said_U], x_U[said_U]) for x_U in (out.logp_T, out.entropy_T)
        )
        return replace(out, logp_T=logp_T, entropy_T=entropy_T)


def forward_apart(
    model: Callable[[Batch], Forward],
    batch: Batch,
    budget: TokenBudget | int,
    forward: Callable[..., Forward] = forward_parts,
) -> Forward:
    """As ``forward``, every turn and every value encoded on its own."""
    apart = PerTurn.of(batch)
    return apart.gather(forward(model, apart.rows, budget))


def backward_apart(
    model: Callable[[Batch], Forward],
    batch: Batch,
    loss_fn: Callable[[Forward], LossT],
    budget: TokenBudget | int,
    backward: Callable[..., LossT] = backward,
) -> LossT:
    """As ``backward``, every turn and every value encoded on its own."""
    apart = PerTurn.of(batch)
    return backward(model, apart.rows, lambda out: loss_fn(apart.gather(out)), budget)
