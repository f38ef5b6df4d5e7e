"""From episodes to the trees that are trained on, and back.

Invariant: an episode's path through its tree holds exactly the episode's tokens. Faulted episodes never get here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agents.tree.episode import Episode, Searched
from agents.tree.tree import Node, graft


@dataclass
class Tree:
    """The episodes of one task that began in the same state, merged where they are equal."""

    root: Node
    paths: list[tuple[Episode, list[tuple[Node, Node]]]] = field(default_factory=list)
    """Each episode with the (action, next state) nodes of the tree that it goes through."""


def grow(episodes: Sequence[Episode], least: int = 1) -> list[Tree]:
    """One tree per task, in the order of first appearance: the episodes of a group share what they have in common.

    A search is a tree of its own. Episodes without a turn are left out, and so is a tree of fewer than ``least``
    episodes: a group algorithm has nothing to compare a lone survivor with.
    """
    trees: dict[object, Tree] = {}
    for episode in episodes:
        if not episode.turns:
            continue
        root = episode.root
        if isinstance(episode, Searched):
            trees[episode.job.id] = Tree(root, [(episode, episode.turns)])  # it is a tree already
            continue
        key = (episode.job.task_id, root.tokens)
        if key not in trees:
            trees[key] = Tree(
                Node(root.kind, root.tokens, anchor=root.anchor, oracle=root.oracle, continued=root.continued)
            )
        # Episodes keep their own chain: what is grafted are nodes without what follows them.
        turns = ((replace(action, children=[]), replace(state, children=[])) for action, state in episode.turns)
        trees[key].paths.append((episode, graft(trees[key].root, turns)))
    return [tree for tree in trees.values() if len(tree.paths) >= least]
