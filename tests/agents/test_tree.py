"""Node, pack and the views of a batch, against slow loops over random trees."""

import random

import pytest
import torch
from tree_cases import SHAPES, some, trees

from agents.tree.packing import pack
from agents.tree.tree import Batch, Kind, Node, graft

CASES = [(shape, seed) for shape in SHAPES for seed in range(3)]


def counted(shape: str, seed: int) -> list[Node]:
    """Trees whose actions have counts, as if several episodes had sampled the same."""
    roots = trees(shape, seed)
    rng = random.Random(seed)
    for start in roots:
        for node in start.walk():
            if node.kind is Kind.ACTION:
                node.count = rng.randint(1, 4)
    return roots


def parent_action(batch: Batch, action: int) -> int:
    return int(batch.prev_S[batch.state_A[action]])


def leaves_below(batch: Batch, action: int) -> list[int]:
    """By walking up from every leaf."""
    found = []
    for leaf, state in enumerate(batch.leaf_L.tolist()):
        step = int(batch.prev_S[state])
        while step >= 0 and step != action:
            step = parent_action(batch, step)
        if step == action:
            found.append(leaf)
    return found


@pytest.mark.parametrize(("shape", "seed"), CASES)
def test_the_row_is_the_tree(shape: str, seed: int) -> None:
    batch = pack(trees(shape, seed), (1, 2))
    for row in range(len(batch)):
        parent = int(batch.parent_T[row])
        assert int(batch.pos_T[row]) == (int(batch.pos_T[parent]) + 1 if parent >= 0 else 0)
        below = {row}
        for other in range(row + 1, len(batch)):  # children come after their parents
            if int(batch.parent_T[other]) in below:
                below.add(other)
        assert sorted(below) == list(range(row, int(batch.end_T[row])))


@pytest.mark.parametrize(("shape", "seed"), CASES)
def test_views_equal_slow_loops(shape: str, seed: int) -> None:
    batch = pack(counted(shape, seed), (1, 2))
    generator = torch.Generator().manual_seed(seed)
    actions, leaves, states = batch.state_A.numel(), batch.leaf_L.numel(), batch.prev_S.numel()
    x_T = torch.randn(len(batch), generator=generator, dtype=torch.float64)
    x_A = torch.randn(actions, generator=generator, dtype=torch.float64)
    x_L = torch.randn(leaves, generator=generator, dtype=torch.float64)
    end_S = torch.randn(states, generator=generator, dtype=torch.float64)

    for action in range(actions):
        mine = [t for t in range(len(batch)) if int(batch.action_T[t]) == action]
        assert torch.isclose(batch.per_action(x_T)[action], x_T[mine].sum())
        assert all(float(batch.to_tokens(x_A)[t]) == float(x_A[action]) for t in mine)
        below = leaves_below(batch, action)
        assert list(range(int(batch.lo_A[action]), int(batch.hi_A[action]))) == below
        assert torch.isclose(batch.sum_below(x_L)[action], x_L[below].sum())
        weight = batch.count_L[below].double()
        assert torch.isclose(batch.below(x_L)[action], (x_L[below] * weight).sum() / weight.sum())

    for leaf in range(leaves):
        path = [action for action in range(actions) if leaf in leaves_below(batch, action)]
        assert torch.isclose(batch.per_episode(x_A)[leaf], x_A[path].sum())
        assert torch.isclose(batch.return_L[leaf], batch.reward_A[path].sum())

    for state in range(states):
        tried = [action for action in range(actions) if int(batch.state_A[action]) == state]
        weight = batch.count_A[tried].double()
        mean = (x_A[tried] * weight).sum() / weight.sum() if tried else end_S[state]
        assert torch.isclose(batch.expect(x_A, end_S)[state], mean)

    for discount in (1.0, 0.7):
        slow = {}
        for action in reversed(range(actions)):  # children have larger numbers than their parents
            state = int(batch.next_A[action])
            tried = [a for a in range(actions) if int(batch.state_A[a]) == state]
            weight = batch.count_A[tried].double()
            rest = (
                sum(w * slow[a] for w, a in zip(weight, tried, strict=True)) / weight.sum() if tried else end_S[state]
            )
            slow[action] = x_A[action] + discount * rest
            assert torch.isclose(batch.suffix_sum(x_A, end_S, discount)[action], slow[action])


def test_suffix_sum_of_a_chain_is_the_return() -> None:
    start = state = Node(Kind.STATE, (1,))
    for reward in (1.0, 2.0, 4.0):
        state = state.add(Node(Kind.ACTION, (2, 3), reward=reward)).add(Node(Kind.STATE, (4,)))
    batch = pack([start])
    assert batch.suffix_sum(batch.reward_A).tolist() == [7.0, 6.0, 4.0]
    assert batch.suffix_sum(batch.reward_A, discount=0.5).tolist() == [3.0, 4.0, 4.0]
    bootstrap = torch.tensor([0.0, 0.0, 0.0, 8.0])
    assert batch.suffix_sum(batch.reward_A, bootstrap, 0.5).tolist() == [4.0, 6.0, 8.0]
    assert batch.turns == 3


def test_counts_are_weights() -> None:
    """Three episodes took the first action and one the second: the mean over episodes, not over branches."""
    start = Node(Kind.STATE, (1,))
    start.add(Node(Kind.ACTION, (2,), reward=1.0, count=3)).add(Node(Kind.STATE, ()))
    start.add(Node(Kind.ACTION, (3,), reward=5.0)).add(Node(Kind.STATE, ()))
    batch = pack([start])
    assert batch.count_L.tolist() == [3, 1]
    assert batch.expect(batch.reward_A, torch.zeros(3)).tolist() == [2.0, 0.0, 0.0]
    assert batch.below(batch.return_L).tolist() == [1.0, 5.0]
    assert batch.raw_tokens == 2 * 3 + 2


def episode(*words: int, reward: float = 0.0, **end: object) -> list[tuple[Node, Node]]:
    pairs = [(Node(Kind.ACTION, (word,), version=0), Node(Kind.STATE, (100 + word,))) for word in words]
    pairs[-1][0].reward = reward
    for key, value in end.items():
        setattr(pairs[-1][1], key, value)
    return pairs


def test_graft_shares_what_is_the_same() -> None:
    start = Node(Kind.STATE, (1,))
    graft(start, episode(1, 2, reward=1.0, terminated=True, success=True))
    graft(start, episode(1, 3, terminated=True, success=False))
    graft(start, episode(1, 2, reward=1.0, terminated=True, success=True))
    assert len(start.children) == 1
    shared = start.children[0]
    assert shared.count == 3
    assert [(child.tokens, child.count) for child in shared.children[0].children] == [((2,), 2), ((3,), 1)]
    batch = pack([start])
    assert batch.count_L.tolist() == [2, 1]
    assert batch.success_L.tolist() == [1, 0]
    assert batch.per_episode(torch.ones(3)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "other",
    [
        episode(1, 2, reward=0.5, terminated=True),
        episode(1, 2, reward=1.0, truncated=True),
        episode(1, 2, reward=1.0, terminated=True, success=True),
        episode(1, 2, reward=1.0, terminated=True, fault="the page server died"),
        episode(1, 2, 4, terminated=True),
    ],
    ids=["reward", "truncated", "verdict", "fault", "goes on"],
)
def test_graft_keeps_different_ends_apart(other: list[tuple[Node, Node]]) -> None:
    start = Node(Kind.STATE, (1,))
    graft(start, episode(1, 2, reward=1.0, terminated=True))
    graft(start, other)
    assert len(start.children[0].children[0].children) == 2
    assert pack([start]).leaf_L.numel() == 2


def test_graft_separates_policy_versions() -> None:
    start = Node(Kind.STATE, (1,))
    graft(start, episode(1))
    newer = episode(1)
    newer[0][0].version = 1
    graft(start, newer)
    assert len(start.children) == 2


def test_group_statistics_know_their_tree() -> None:
    batch = pack(trees("several"))
    assert batch.trees == 3
    assert batch.tree_S[batch.state_A].tolist() == batch.tree_A.tolist()
    assert batch.tree_S[batch.leaf_L].tolist() == batch.tree_L.tolist()


def test_labels_versions_and_ends_are_carried() -> None:
    start = Node(Kind.STATE, (1,), anchor="here")
    good = start.add(Node(Kind.ACTION, (2,), logp=(-0.5,), label=True, version=3))
    good.add(Node(Kind.STATE, (), truncated=True, success=False, fault="lost", anchor="there"))
    bad = start.add(Node(Kind.ACTION, (3,), label=False))
    bad.add(Node(Kind.STATE, (), terminated=True, success=True))
    start.add(Node(Kind.ACTION, (4,))).add(Node(Kind.STATE, ()))
    batch = pack([start])
    assert batch.label_A.tolist() == [1, 0, -1]
    assert batch.version_A.tolist() == [3, -1, -1]
    assert batch.old_logp_T.tolist() == [0.0, -0.5, 0.0, 0.0]
    assert batch.success_L.tolist() == [0, 1, -1]
    assert batch.fault_L.tolist() == [True, False, False]
    assert batch.terminated_S.tolist() == [False, False, True, False]
    assert batch.truncated_S.tolist() == [False, True, False, False]
    assert batch.anchor_S == ("here", "there", "", "")
    moved = batch.to("cpu")
    assert torch.equal(moved.token_T, batch.token_T) and moved.anchor_S == batch.anchor_S


def test_a_tree_deeper_than_the_recursion_limit() -> None:
    rng = random.Random(0)
    start = Node(Kind.STATE, (1,))
    state = start
    for _ in range(3000):
        state = state.add(Node(Kind.ACTION, some(rng, 1))).add(Node(Kind.STATE, ()))
    batch = pack([start])
    assert batch.turns == 3000
    assert sum(1 for _ in start.walk()) == 6001


def test_what_is_no_tree_is_refused() -> None:
    start = Node(Kind.STATE, (1,))
    with pytest.raises(ValueError, match="cannot follow"):
        start.add(Node(Kind.STATE, (2,)))
    with pytest.raises(ValueError, match="at least one token"):
        start.add(Node(Kind.ACTION, ()))
    with pytest.raises(ValueError, match="cannot follow"):
        Node(Kind.CRITIC, (1,)).add(Node(Kind.ACTION, (2,)))
    with pytest.raises(ValueError, match="root"):
        pack([Node(Kind.STATE, ())])
    with pytest.raises(ValueError, match="root"):
        pack([Node(Kind.ACTION, (1,))])
    open_end = Node(Kind.STATE, (1,))
    open_end.add(Node(Kind.ACTION, (2,)))
    with pytest.raises(ValueError, match="exactly one state"):
        pack([open_end])
    uneven = Node(Kind.STATE, (1,))
    uneven.add(Node(Kind.ACTION, (2, 3), logp=(-1.0,))).add(Node(Kind.STATE, ()))
    with pytest.raises(ValueError, match="log-probabilities"):
        pack([uneven])
