"""Random trees, fake forwards whose numbers are leaf tensors, and trees in which nothing is shared.

Every token of a tree has an id of its own, so that a token can be found again in a tree of another shape. Trees of this
file hold float64 numbers, so that a batch's float32 columns are replaced by them.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack

CRITIC = (-1,)


@dataclass
class World:
    """Numbers for the tokens and states of some trees: the same token has the same numbers in every shape."""

    rng: random.Random
    gap: float = 0.3
    tokens: int = 0
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    ref: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def text(self, n: int) -> tuple[int, ...]:
        """``n`` tokens that occur nowhere else."""
        for _ in range(n):
            old = -2 * self.rng.random()
            self.old.append(old)
            self.new.append(old + self.rng.gauss(0, self.gap))
            self.ref.append(old + self.rng.gauss(0, self.gap))
            self.value.append(self.rng.gauss(0, 1))
        self.tokens += n
        return tuple(range(self.tokens - n, self.tokens))

    def state(self) -> Node:
        return Node(Kind.STATE, self.text(self.rng.randint(1, 2)))

    def action(self, reward: float | None = None, count: int = 1) -> Node:
        paid = round(self.rng.gauss(0, 1), 3) if reward is None else reward
        return Node(Kind.ACTION, self.text(self.rng.randint(1, 4)), reward=paid, count=count)

    def end(self, state: Node) -> None:
        """The episode ends here, one way or another."""
        state.terminated = self.rng.random() < 0.6
        state.truncated = not state.terminated

    def chain(self, turns: int) -> Node:
        root = state = self.state()
        for _ in range(turns):
            state = state.add(self.action()).add(self.state())
        self.end(state)
        return root

    def tree(self, depth: int = 3, width: int = 3) -> Node:
        """A bushy tree, at least one turn deep, whose counts are all 1."""
        root = self.state()
        self.grow(root, depth, width, at_least=1)
        return root

    def grow(self, state: Node, depth: int, width: int, at_least: int = 0) -> None:
        for _ in range(self.rng.randint(at_least, width) if depth else 0):
            self.grow(state.add(self.action()).add(self.state()), depth - 1, width)
        if not state.children:
            self.end(state)

    def batch(self, trees: Sequence[Node], critic: bool = True) -> Batch:
        """The trees packed, with old and reference log-probabilities, and rewards in float64."""
        batch = pack(trees, critic_prompt=CRITIC if critic else None)
        nodes = [node for root in trees for node in root.walk()]
        reward_A = torch.tensor([n.reward for n in nodes if n.kind is Kind.ACTION], dtype=torch.float64)
        return replace(
            batch,
            reward_A=reward_A,
            return_L=batch.per_episode(reward_A),
            old_logp_T=self.pick(batch, torch.tensor(self.old, dtype=torch.float64)),
            ref_logp_T=self.pick(batch, torch.tensor(self.ref, dtype=torch.float64)),
        )

    def pick(self, batch: Batch, x: Tensor) -> Tensor:
        """x_T: the numbers of the batch's own action tokens, 0 elsewhere."""
        return torch.where(batch.action_T >= 0, x[batch.token_T.clamp_min(0)], 0)

    def numbers(self, same: bool = False) -> tuple[Tensor, Tensor]:
        """Current log-probabilities and values as leaf tensors; ``same``: the policy has not moved yet."""
        logp = torch.tensor(self.old if same else self.new, dtype=torch.float64, requires_grad=True)
        return logp, torch.tensor(self.value, dtype=torch.float64, requires_grad=True)

    def forward(self, batch: Batch, logp: Tensor, value: Tensor) -> Forward:
        """A forward pass that gave these: a state's value is the number of the last token read in it."""
        value_T = value[batch.token_T.clamp_min(0)]
        entropy_T = torch.zeros(len(batch), dtype=torch.float64)
        return Forward(self.pick(batch, logp), entropy_T, value_T[batch.last_S], value_T)


def world(seed: int, gap: float = 0.3) -> World:
    return World(random.Random(seed), gap)


def paths(state: Node) -> Iterator[list[tuple[Node, Node]]]:
    """Every episode below ``state`` as (action, next state) pairs, one per leaf."""
    if not state.children:
        yield []
    for action in state.children:
        for rest in paths(action.children[0]):
            yield [(action, action.children[0]), *rest]


def unshared(root: Node) -> Node:
    """The same episodes, each a chain of its own below the root, once for every count."""
    flat = replace(root, children=[])
    for path in paths(root):
        for _ in range(path[-1][0].count if path else 0):
            state = flat
            for action, following in path:
                said = state.add(replace(action, children=[], count=1))
                state = said.add(replace(following, children=[]))
    return flat


def counted(world: World, root: Node) -> Node:
    """The tree with several episodes on each of its paths: leaves get counts, and actions the sum of those below."""

    def count(state: Node) -> int:
        for action in state.children:
            action.count = count(action.children[0])
        return sum(a.count for a in state.children) or world.rng.randint(1, 3)

    count(root)
    return root


def states(root: Node) -> list[Node]:
    return [node for node in root.walk() if node.kind is Kind.STATE]


def actions(root: Node) -> list[Node]:
    return [node for node in root.walk() if node.kind is Kind.ACTION]
