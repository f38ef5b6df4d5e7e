"""A trained critic as a judge: an action is GOOD where what the critic expects of the episode rises over it.

Invariant: every value is read at the shadow prompt of its state, over the very tokens of the episode. The rise over
action k is r_k + discount V(s_{k+1}) - V(s_k), with V = 0 after the end of an episode that the environment ended: what
was expected and then paid is no fall. An action over which nothing rises is BAD.

Legend of the shape suffixes: A actions, S states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from agents.judge.base import Judge, Labels, Verdicts
from agents.tree import Batch
from agents.tree.episode import Episode

if TYPE_CHECKING:  # a listing imports every judge, and takes no model
    from torch import Tensor

    from agents.model.actor_critic import ActorCritic


class CriticJudge(Judge):
    """Labels a step by the change of the critic's value.

    ``model`` has a value head that was trained with ``prompt`` and ``discount``, and reads the episodes' tokens.
    """

    def __init__(
        self, model: ActorCritic, prompt: Sequence[int], discount: float = 1.0, token_budget: int = 16384
    ) -> None:
        self.model, self.prompt, self.discount, self.token_budget = model, tuple(prompt), discount, token_budget

    def label(self, episodes: Sequence[Episode], scores: Sequence[float]) -> Verdicts:
        from agents.tree.packing import pack

        labels: list[Labels] = [() for _ in episodes]
        played = [i for i, episode in enumerate(episodes) if episode.turns]
        if played:
            batch = pack([episodes[i].root for i in played], self.prompt, self.model.device)
            good = iter((self.rises(batch) > 0).tolist())  # chains: packed one after another, each in order
            for i in played:
                labels[i] = tuple(next(good) for _ in episodes[i].turns)
        return Verdicts(labels)

    def rises(self, batch: Batch) -> Tensor:
        """rise_A: by how much the expected outcome rose over each action."""
        from agents.tree.chunked_backward import forward_parts

        value_S = forward_parts(self.model, batch, self.token_budget).value_S
        assert value_S is not None, "the model has no value head"
        after_S = torch.where(batch.terminated_S, 0, value_S)
        return batch.reward_A + self.discount * after_S[batch.next_A] - value_S[batch.state_A]
