"""The episodes of a group as one tree, the way they are trained.

Invariant: two episodes share a state exactly where ``graft`` shares it: same tokens sampled by the same
version, same reward, same text seen, same verdict;
an episode that ends where another goes on is kept apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runners.viewer.records import Episode


@dataclass
class StateNode:
    """One state of the merged tree. Episodes are named by their place in the group."""

    parent: int
    """Index of the state before it; -1 at the root."""
    episode: int
    """The first episode that reached it; its turn ``turn`` led here (-1 at the root)."""
    turn: int
    count: int = 0
    """Episodes that passed or ended here."""
    ends: list[int] = field(default_factory=list)
    """Episodes that ended here."""


def merge(episodes: Sequence[Episode]) -> list[StateNode]:
    """The states of the tree, parents before children; the root alone when nothing was played.

    Episodes that the environment broke are no part of it.
    """
    states = [StateNode(-1, 0, -1)]
    known: dict[tuple[object, ...], int] = {}
    for number, episode in enumerate(episodes):
        if episode.turns is None:
            continue
        at = 0
        states[at].count += 1
        for place, turn in enumerate(episode.turns):
            last = place == len(episode.turns) - 1
            verdict = (turn.terminated, turn.truncated, episode.success if last else None)
            key = (at, turn.tokens, turn.version, turn.reward, turn.observation_tokens, *verdict)
            if key not in known:
                known[key] = len(states)
                states.append(StateNode(at, number, place))
            at = known[key]
            states[at].count += 1
        states[at].ends.append(number)
    return states
