"""Exercises after the critic prompt of the tiny model, so that a critic has something to read.

The answering layers are discarded; the hidden states they read from stay. A large model attends to what it has read; a
tiny one that never learned to has nothing to value a state by.

Legend of the shape suffixes: T tokens, D width, S states, R trees, K recalled tokens, V vocabulary.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.tree import Batch


class Recall(nn.Module):
    """Recalls the last tokens before each critic prompt from the hidden state of its last token."""

    def __init__(self, model: PreTrainedModel, seed: int, tokens: int = 12) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.answer = nn.Linear(model.config.hidden_size, tokens * model.config.vocab_size)
        self.tokens = tokens

    def forward(self, hidden_TD: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy, in nats, over states and tokens; the row has a critic prompt under every state."""
        logits_SKV = self.answer(hidden_TD[batch.critic_S]).unflatten(-1, (self.tokens, -1))
        row_S, recalled = batch.last_S, []
        for _ in range(self.tokens):
            recalled.append(batch.token_T[row_S])
            row_S = batch.parent_T[row_S].clamp_min(0)
        return nn.functional.cross_entropy(logits_SKV.flatten(0, 1), torch.stack(recalled, 1).flatten())


class PredictSuccess(nn.Module):
    """Predicts whether a demonstration succeeds, and the oracle's chance of success in each state, from the hidden
    state of the last token of the critic prompt."""

    def __init__(self, model: PreTrainedModel, seed: int) -> None:
        super().__init__()
        width = model.config.hidden_size
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.answer = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, hidden_TD: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy, in nats, over the states whose end is known, and over those with an oracle's value."""
        success_R = batch.success_L.new_full((batch.trees,), -1).index_copy(0, batch.tree_L, batch.success_L)
        success_S = success_R[batch.tree_S].to(hidden_TD.dtype)
        success_S[success_S < 0] = torch.nan
        loss = hidden_TD.new_zeros(())
        for logit_S, wanted_S in zip(
            self.answer(hidden_TD[batch.critic_S]).unbind(1),
            (success_S, batch.oracle_S.to(hidden_TD.dtype)),
            strict=True,
        ):
            known_S = ~wanted_S.isnan()
            if known_S.any():
                loss = loss + nn.functional.binary_cross_entropy_with_logits(logit_S[known_S], wanted_S[known_S])
        return loss
