"""Asks the critic what states are worth, for many episodes in one pass.

Invariant: a value is read at the shadow prompt of its state, over the very tokens of the episode; what episodes have in
common is read once, and only states whose value is wanted are evaluated.

Legend of the shape suffixes: N states that are valued about, S states.
"""

from collections.abc import Sequence

import torch

from agents.model.actor_critic import ActorCritic
from agents.tree import Kind, Node
from agents.tree.chunked_backward import critic_hidden, forward_parts
from agents.tree.episode import Episode
from agents.tree.merge import Tree, grow
from agents.tree.packing import pack


class Critic:
    """Values of the states of episodes.

    ``model`` reads its values at ``prompt``; where that is None it has a critic of its own, which values tokens.
    ``token_budget`` bounds the tokens of one forward.
    """

    def __init__(self, model: ActorCritic, prompt: Sequence[int] | None, token_budget: int = 16384) -> None:
        self.model, self.prompt, self.token_budget = model, prompt, token_budget
        self.encoded_tokens = 0
        """Tokens that were read for values."""

    def values(self, episodes: Sequence[Episode]) -> list[tuple[float, ...]]:
        """V of every state of each episode, the first and the last one included."""
        return self._ask(episodes, whole=True)

    def last(self, episodes: Sequence[Episode]) -> list[float]:
        """V of the state in which each episode stands."""
        return [values[-1] for values in self._ask(episodes, whole=False)]

    @torch.no_grad()
    def _ask(self, episodes: Sequence[Episode], whole: bool) -> list[tuple[float, ...]]:
        if not episodes:
            return []
        states: dict[int, list[Node]] = {}
        trees = [*grow(episodes), *(_stump(e) for e in episodes if not e.turns)]
        for tree in trees:
            for episode, path in tree.paths:
                passed = [tree.root, *(state for _, state in path)]
                states[id(episode)] = passed if whole else passed[-1:]
        value = self._of_states([tree.root for tree in trees], {id(s) for mine in states.values() for s in mine})
        return [tuple(value[id(state)] for state in states[id(episode)]) for episode in episodes]

    def _of_states(self, roots: Sequence[Node], valued: set[int]) -> dict[int, float]:
        """V of the ``valued`` states, by the identity of their nodes."""
        batch = pack(roots, self.prompt, self.model.device, valued=valued)
        before = self.model.counters.tokens
        if self.prompt is not None:
            hidden_ND, state_N = critic_hidden(self.model.hidden, batch, self.token_budget)
            value_S = self.model.values_from(hidden_ND, state_N, batch.critic_S.numel())
        else:
            result = forward_parts(self.model, batch, self.token_budget).state_values(batch)
            assert result is not None, "the model has no critic"
            value_S = result
        self.encoded_tokens += self.model.counters.tokens - before
        nodes = (node for root in roots for node in root.walk() if node.kind is Kind.STATE)
        return {id(node): float(value) for node, value in zip(nodes, value_S.tolist(), strict=True)}


def _stump(episode: Episode) -> Tree:
    """The tree of an episode without a turn."""
    root = Node(Kind.STATE, episode.root.tokens)
    return Tree(root, [(episode, [])])
