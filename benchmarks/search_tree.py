"""The cost of training on a whole search tree: one packed pass against one pass per path.

    python benchmarks/search_tree.py                    # the whole table
    python benchmarks/search_tree.py --quick            # one size and one tree, conditions wider

Forward, Self-AC's loss and backward of a search: a prompt of 60 tokens, actions of 40, observations of 60, a shadow
prompt of 16 under every state; of the 4 actions tried in each state of a depth the states after 2 go on. LoRA trains.
A path is trained with the targets and advantages of the tree, and with its share of what it has in common with others,
so loss and gradient are the same. Those targets need the values of the whole tree: "apart" is told them for nothing,
"apart, targets too" computes them in a pass of its own without gradient. Prints one table and exits with 1 where a
condition does not hold.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console
from torch import Tensor

from agents.model.actor_critic import ActorCritic
from agents.tree import Batch, Forward, Node
from agents.tree.packing import pack
from algorithms.formulas.maths import scale_advantage
from algorithms.formulas.returns import turns_in
from algorithms.selfac import SelfAC
from benchmarks import timing, variants
from benchmarks.timing import Spread, ratio

ALGORITHM = SelfAC()
WAYS = ("one pass", "apart", "apart, targets too")


@dataclass(frozen=True)
class SearchTree:
    """Time and memory of training on a search tree, relative to its paths one by one."""

    sizes: tuple[str, ...] = ("2M", "5M")
    """Models, by their number of parameters."""
    depths: tuple[int, ...] = (3, 6)
    """Turns of the longest path."""
    branch: int = 4
    """Actions tried in a state."""
    beam: int = 2
    """States that go on at each depth."""
    rounds: int = 7
    """How often everything is timed, in turn."""
    quick: bool = False
    """A smoke run: 2M and 3 turns; within 0.6 of the token ratio instead of 0.8."""
    out: Path = Path("benchmarks/results/search_tree.json")
    """File for the result."""


@dataclass(frozen=True)
class Cell:
    """What was measured for one model and one depth."""

    size: str
    depth: int
    paths: int
    seconds: dict[str, Spread]
    tokens: dict[str, int]
    time: dict[str, Spread]
    """Ways / one pass."""
    memory: dict[str, int | None]

    @property
    def limit(self) -> float:
        """The ratio of the numbers of tokens: the largest possible gain."""
        return self.tokens["apart"] / self.tokens["one pass"]

    @property
    def memory_ratio(self) -> float | None:
        one, apart = (self.memory.get(way) for way in WAYS[:2])
        return one / apart if one and apart else None


# -- a search, and its paths ------------------------------------------------------------------------------------------


def search(depth: int, branch: int, beam: int, rng: random.Random) -> Node:
    """A search of which chance chose the states that go on; the last ones are terminal."""
    root = variants.episode(0, rng)
    level = [root]
    for turn in range(depth):
        chosen = rng.sample(level, min(beam, len(level)))
        level = []
        for state in chosen:
            for _ in range(branch):
                step = variants.episode(1, rng).children[0]
                step.reward = float(turn == depth - 1 and rng.random() < 0.5)
                step.children[0].terminated = turn == depth - 1
                state.add(step)
                level.append(step.children[0])
    return root


def chains(root: Node) -> list[Node]:
    """Every path of the tree as a chain of its own, in the order of its leaves."""
    result: list[Node] = []
    stack: list[tuple[Node, tuple[Node, ...]]] = [(root, ())]
    while stack:
        node, before = stack.pop()
        path = (*before, node)
        if not node.children:
            copies = [replace(n, children=[]) for n in path]
            for above, below in pairwise(copies):
                above.add(below)
            result.append(copies[0])
        stack.extend((child, path) for child in reversed(node.children))
    return result


@dataclass(frozen=True)
class Given:
    """What the paths are told of the tree: targets, advantages and what each of them has a share of.

    Legend: A actions, S states of the tree, M steps of look-ahead.
    """

    target_MS: Tensor
    adv_A: Tensor
    outcome_S: Tensor
    """What V of a terminal state learns."""
    weight_S: Tensor
    """Weight of a state's TD loss in the whole, and of a terminal one's outcome; divided by the paths through it."""
    end_S: Tensor
    weight_A: Tensor
    actions: list[list[int]]
    """Numbers of each path's actions."""
    states: list[list[int]]

    @classmethod
    def of(cls, batch: Batch, value_S: Tensor) -> Given:
        """From the layout of the whole tree and its values."""
        value_S = value_S.detach().double()
        adv_A = scale_advantage(ALGORITHM.advantage(batch, value_S), batch.count_A, ALGORITHM.normalize)
        turns_S, through_A = turns_in(batch).double(), (batch.hi_A - batch.lo_A).double()
        through_S = torch.where(batch.prev_S >= 0, through_A[batch.prev_S], batch.leaf_L.numel())
        ended_S = torch.zeros_like(turns_S)
        leaf_L = batch.leaf_L[batch.prev_S[batch.leaf_L] >= 0]
        last_L = batch.prev_S[leaf_L]
        ended_S[leaf_L] = (batch.count_A[last_L] * batch.terminated_S[leaf_L]).double()
        outcome_S = torch.zeros_like(turns_S)
        outcome_S[leaf_L] = batch.reward_A[last_L].double()
        whole = turns_S.sum() + ended_S.sum()
        paths_A = [((batch.lo_A <= i) & (batch.hi_A > i)).nonzero()[:, 0].tolist() for i in range(batch.leaf_L.numel())]
        return cls(
            target_MS=ALGORITHM.targets(batch, value_S),
            adv_A=adv_A,
            outcome_S=outcome_S,
            weight_S=turns_S / whole / through_S,
            end_S=ended_S / whole / through_S,
            weight_A=batch.count_A / batch.count_A.sum().double() / through_A,
            actions=paths_A,
            states=[[int(batch.state_A[p[0]]), *(int(batch.next_A[a]) for a in p)] for p in paths_A],
        )


def share(chain: Batch, new: Forward, given: Given, path: int) -> Tensor:
    """The part of the tree's loss that belongs to one of its paths."""
    action_P, state_P = given.actions[path], given.states[path]
    assert new.value_S is not None
    value_P = new.value_S.double()
    td = (value_P - given.target_MS[:, state_P]).square().mean(0)
    critic = (given.weight_S[state_P] * td).sum()
    critic = critic + (given.end_S[state_P] * (value_P - given.outcome_S[state_P]).square()).sum()
    ratio_P = chain.per_action(new.logp_T - chain.old_logp_T).exp()
    adv_P, c = given.adv_A[action_P], ALGORITHM.clip
    gain_P = torch.minimum(ratio_P * adv_P, ratio_P.clamp(1 - c, 1 + c) * adv_P)
    gain_P = torch.where(adv_P < 0, gain_P.clamp_min(ALGORITHM.dual_clip * adv_P), gain_P)
    return ALGORITHM.alpha * critic - (1 - ALGORITHM.alpha) * (given.weight_A[action_P] * gain_P).sum()


# -- the ways ---------------------------------------------------------------------------------------------------------


def one_pass(model: ActorCritic, tree: Batch) -> Tensor:
    """Self-AC on the packed tree: loss and gradient."""
    model.zero_grad(set_to_none=True)
    new = model(tree)
    loss = ALGORITHM.loss(tree, new, ALGORITHM.credit(tree, new.detach())).total
    loss.backward()
    return loss.detach()


def apart(model: ActorCritic, paths: list[Batch], given: Given) -> Tensor:
    """Every path a pass of its own; the gradients add up."""
    model.zero_grad(set_to_none=True)
    total = torch.zeros((), dtype=torch.float64)
    for i, chain in enumerate(paths):
        loss = share(chain, model(chain), given, i)
        loss.backward()
        total += loss.detach()
    return total


@torch.no_grad()
def values_apart(model: ActorCritic, tree: Batch, paths: list[Batch], states: list[list[int]]) -> Tensor:
    """value_S of the tree, a pass for each path."""
    value_S = torch.zeros(tree.prev_S.numel())
    for chain, numbers in zip(paths, states, strict=True):
        value_S[numbers] = model(chain).value_S
    return value_S


def programs(model: ActorCritic, root: Node) -> tuple[dict[str, timing.Program], Batch, list[Batch]]:
    """Every way, the packed tree, and the packed paths."""
    tree = pack([root], variants.CRITIC_PROMPT)
    paths = [pack([chain], variants.CRITIC_PROMPT) for chain in chains(root)]
    with torch.no_grad():
        old = model(tree)
        tree = replace(tree, old_logp_T=old.logp_T)
        paths = [replace(chain, old_logp_T=model(chain).logp_T) for chain in paths]
    assert old.value_S is not None
    given = Given.of(tree, old.value_S)

    def targets_too() -> Tensor:
        return apart(model, paths, Given.of(tree, values_apart(model, tree, paths, given.states)))

    ways = (lambda: one_pass(model, tree), lambda: apart(model, paths, given), targets_too)
    return dict(zip(WAYS, ways, strict=True)), tree, paths


# -- measuring --------------------------------------------------------------------------------------------------------


def memory_of(size: str, depth: int, branch: int, beam: int, way: str) -> tuple[timing.Program, timing.Program]:
    """(warm-up, program) for ``timing.peak_memory``."""
    model = variants.actor_critic(size)
    small, _, _ = programs(model, search(1, branch, beam, random.Random(0)))
    large, _, _ = programs(model, search(depth, branch, beam, random.Random(0)))
    return small[way], large[way]


def measure(model: ActorCritic, size: str, depth: int, settings: SearchTree) -> Cell:
    """One cell of the table."""
    shape = (depth, settings.branch, settings.beam)
    ways, tree, paths = programs(model, search(*shape, random.Random(0)))
    encoded = sum(map(len, paths))
    times = timing.interleaved(ways, settings.rounds, "cpu")
    return Cell(
        size=size,
        depth=depth,
        paths=len(paths),
        seconds={way: Spread.of(values) for way, values in times.items()},
        tokens={"one pass": len(tree), "apart": encoded, "apart, targets too": 2 * encoded},
        time={way: ratio(times[way], times["one pass"]) for way in WAYS[1:]},
        memory={way: timing.peak_memory(memory_of, size, *shape, way, device="cpu") for way in WAYS[:2]},
    )


def conditions(cells: list[Cell], quick: bool) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    least = 0.6 if quick else 0.8
    for cell in cells:
        limit, found = least * cell.limit, cell.time["apart"].median
        yield (
            f"{cell.size}, {cell.depth} turns: its paths cost {found:.2f} times the tree, at least {limit:.2f}",
            found >= limit,
        )


def row(cell: Cell) -> list[object]:
    one = cell.seconds["one pass"].median
    used = {way: x / timing.MB for way, x in cell.memory.items() if x}
    memory = f"{used['one pass']:.0f} / {used['apart']:.0f} MB" if len(used) == 2 else ""
    apart_, both = (cell.time[way] for way in WAYS[1:])
    return [f"{cell.size}, {cell.depth}", cell.paths, f"{1000 * one:.0f} ms", apart_, both, cell.limit, memory]


HEADINGS = (
    "model, turns",
    "paths",
    "one pass",
    "apart / one",
    "with targets / one",
    "token ratio",
    "memory, one / apart",
)


def main() -> None:
    settings = tyro.cli(SearchTree)
    timing.one_thread()
    timing.keep_memory()
    console = Console(width=150)
    cells = []
    for size in ("2M",) if settings.quick else settings.sizes:
        model = variants.actor_critic(size)
        for depth in (3,) if settings.quick else settings.depths:
            cells.append(measure(model, size, depth, settings))
            console.print(*map(timing.shown, row(cells[-1])), sep=" | ", highlight=False, soft_wrap=True)
    title = f"loss and gradient of a search, LoRA, {timing.hardware('cpu')}; medians with smallest and largest"
    timing.print_table(title, HEADINGS, map(row, cells), console)
    result = {"cells": [{**asdict(cell), "limit": cell.limit, "memory_ratio": cell.memory_ratio} for cell in cells]}
    sys.exit(timing.finish(result, conditions(cells, settings.quick), settings.out, console))


if __name__ == "__main__":
    main()
