"""What an update credits its episodes with, read off their trees for the record.

Legend of the shape suffixes: A actions, S states, both in the order in which the trees were packed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from agents.tree import Kind, Node
from agents.tree.episode import EpisodeId
from agents.tree.merge import Tree


@dataclass(frozen=True)
class Credited:
    """Values of an episode's states and advantages of its actions, before the update."""

    values: tuple[float | None, ...] | None
    """V of every state, the last one included: of the critic, or of continuations; None without either."""
    advantages: tuple[float, ...] | None
    """One for each action; None for an algorithm that has none."""


def credited(
    trees: Sequence[Tree], value_S: Tensor | None, adv_A: Tensor | None, *, played: bool
) -> dict[EpisodeId, Credited]:
    """Values and advantages of every episode of these trees. ``played``: values are those of continuations."""
    nodes = [node for tree in trees for node in tree.root.walk()]  # in the order in which they were packed
    place = {id(n): i for kind in Kind for i, n in enumerate(n for n in nodes if n.kind is kind)}
    adv = None if adv_A is None else adv_A.tolist()
    value = None if value_S is None else value_S.tolist()

    def values(states: Sequence[Node]) -> tuple[float | None, ...] | None:
        if played:
            return tuple(s.continued for s in states)
        return None if value is None else tuple(value[place[id(s)]] for s in states)

    return {
        episode.job.id: Credited(
            values((tree.root, *(s for _, s in path))),
            None if adv is None else tuple(adv[place[id(a)]] for a, _ in path),
        )
        for tree in trees
        for episode, path in tree.paths
    }
