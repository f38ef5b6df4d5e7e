"""Episodes on their way to another process."""

import pickle

import pytest

from agent_envs.core import Task
from agents.tree.episode import Episode, Job, Searched
from agents.tree.tree import Kind, Node

TASK = Task("one", "train", "Go.")


def episode(turns: int) -> Episode:
    played = Episode(Job(TASK), Node(Kind.STATE, (1, 2), anchor="begin"), texts=[("a", "b")])
    for turn in range(turns):
        action, state = Node(Kind.ACTION, (turn,), logp=(-0.5,), version=3), Node(Kind.STATE, (7,), oracle=0.5)
        played.end.add(action).add(state)
        played.turns.append((action, state))
    return played


@pytest.mark.parametrize("turns", [0, 1, 400])
def test_an_episode_of_many_turns_arrives_whole(turns: int) -> None:
    sent = episode(turns)
    got = pickle.loads(pickle.dumps(sent))
    assert (got.job, got.texts, got.prompt) == (sent.job, sent.texts, sent.prompt)
    nodes = list(got.root.walk())
    assert [(n.kind, n.tokens, n.logp, n.version, n.oracle, n.anchor) for n in nodes] == [
        (n.kind, n.tokens, n.logp, n.version, n.oracle, n.anchor) for n in sent.root.walk()
    ]
    assert len(got.turns) == turns and all(node in nodes for turn in got.turns[:3] for node in turn)
    assert [id(node) for turn in got.turns for node in turn] == [id(node) for node in nodes[1:]]
    assert got.end is (nodes[-1] if turns else got.root)
    assert all(node.children for node in sent.root.walk() if node is not sent.end), "what was sent is as it was"


def test_a_search_arrives_as_a_tree() -> None:
    root = Node(Kind.STATE, (1,))
    paths = [[root.add(Node(Kind.ACTION, (a,))).add(Node(Kind.STATE, (9,)))] for a in range(3)]
    deep = paths[1][0].add(Node(Kind.ACTION, (5,)))
    turns = [(root.children[1], paths[1][0]), (deep, deep.add(Node(Kind.STATE, ())))]
    got = pickle.loads(pickle.dumps(Searched(Job(TASK), root, turns, rounds=2)))
    assert isinstance(got, Searched) and got.rounds == 2
    assert [len(node.children) for node in got.root.walk()] == [len(node.children) for node in root.walk()]
    assert got.turns[0][0] is got.root.children[1] and got.turns[1][0] is got.turns[0][1].children[0]


def test_control_a_chain_of_nodes_is_too_deep_for_pickle() -> None:
    with pytest.raises(RecursionError):
        pickle.dumps(episode(4000).root)  # since Python 3.12 pickle may go ten times as deep
