"""An episode as plain values for JSON, and back again.

Invariant: every token, number and text comes back bit for bit. The job is not part of it: tasks belong to environments.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from agents.tree.episode import Episode, Job
from agents.tree.tree import Kind, Node

_OF_NODE = [f.name for f in fields(Node) if f.name != "children"]
_OF_EPISODE = [f.name for f in fields(Episode) if f.name not in ("job", "root", "turns")]


def plain_episode(episode: Episode) -> dict[str, Any]:
    """All of a chain of turns but its job."""
    nodes = [episode.root, *(node for turn in episode.turns for node in turn)]
    own = {name: getattr(episode, name) for name in _OF_EPISODE}
    return own | {"nodes": [{name: getattr(node, name) for name in _OF_NODE} for node in nodes]}


def episode_of(job: Job, values: Mapping[str, Any]) -> Episode:
    """The episode that `plain_episode` gave."""
    root, *nodes = (_node(of_node) for of_node in values["nodes"])
    own = {name: values[name] for name in _OF_EPISODE}
    texts = [(action, seen) for action, seen in own.pop("texts")]
    episode = Episode(job, root, texts=texts, prompt=tuple(own.pop("prompt")), **own)
    for action, state in zip(nodes[::2], nodes[1::2], strict=True):
        episode.end.add(action).add(state)
        episode.turns.append((action, state))
    return episode


def _node(values: Mapping[str, Any]) -> Node:
    columns: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
    columns["kind"] = Kind(values["kind"])
    return Node(**columns)
