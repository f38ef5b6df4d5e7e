"""Blocks world: take blocks from the top of stacks until the stacks are those that are wanted.

Invariant: every move can be taken back by another one, so nothing is ever lost but turns.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, permutations, product
from random import Random

from agent_envs.actions import ActionError, Verb
from agent_envs.puzzle.protocol import Puzzle

Stacks = tuple[str, ...]
"""The stacks in alphabetical order, each from the bottom up: ("ab", "c") has b on a, and c on the table."""
_BLOCKS = {1: 4, 2: 5, 3: 6}
"""Level → blocks."""
_TABLE, _NAMES = "table", "abcdef"
_LEAST = 2


@dataclass(frozen=True)
class Blocks:
    """A board."""

    stacks: Stacks
    wanted: Stacks


class BlocksWorld(Puzzle[Blocks]):
    """Four, five and six blocks."""

    verb = Verb("MOVE", "a to b")
    goal = (
        "Move blocks until the stacks are those wanted; stacks are written from the bottom up. Only a block on top can "
        "be moved: a to b puts it on another block on top, a to table puts it on the table."
    )
    longest = 10

    def draw(self, rng: Random, level: int) -> Blocks:
        names = _NAMES[: _BLOCKS[level]]
        while True:
            board = Blocks(_stacked(names, rng), _stacked(names, rng))
            if _LEAST <= self.distance(board) <= self.longest:
                return board

    def key(self, board: Blocks) -> str:
        """The least of what naming the blocks by their places in the wanted stacks makes of it."""
        by_height = groupby(sorted(board.wanted, key=len), key=len)
        orders = product(*(permutations(list(group)) for _, group in by_height))
        return min(
            repr(_renamed(board, "".join("".join(stack) for group in order for stack in group))) for order in orders
        )

    def show(self, board: Blocks) -> str:
        return f"stacks: {_text(board.stacks)}; wanted: {_text(board.wanted)}"

    def moves(self, board: Blocks) -> Sequence[str]:
        return [] if self.solved(board) else [move for move, _ in _next(board.stacks)]

    def solved(self, board: Blocks) -> bool:
        return board.stacks == board.wanted

    def distance(self, board: Blocks) -> int:
        # Named by their places in the wanted stacks, the blocks of many boards share one table.
        order = "".join(sorted(board.wanted, key=lambda stack: (len(stack), stack)))
        renamed = _renamed(board, order)
        return _distances(renamed.wanted)[renamed.stacks]

    def _play(self, board: Blocks, text: str) -> Blocks:
        block, result, onto = (part.strip() for part in text.casefold().partition(" to "))
        there = "".join(sorted("".join(board.stacks)))
        if not result or block not in list(there) or onto not in [*there, _TABLE]:
            raise ActionError("a move is like a to b, or a to table", "一步如 a to b，或 a to table")
        stacks = dict(_next(board.stacks)).get(f"{block} to {onto}")
        if stacks is not None:
            return Blocks(stacks, board.wanted)
        for name in (block, onto):
            above = next((stack[stack.index(name) + 1 :] for stack in board.stacks if name in stack), "")
            if name != _TABLE and above:
                raise ActionError(f"{above[0]} is on {name}", f"{above[0]} 在 {name} 上面")
        where = f"on {_TABLE}" if onto == _TABLE else "on itself"
        raise ActionError(f"{block} cannot be put there: it would be {where} as before", f"{block} 不能放在那里")

    def mistake(self, board: Blocks) -> str | None:
        """It puts a block onto another one where it should have been put on the table."""
        best = self.best(board)
        if best is None or not best.endswith(_TABLE):
            return None
        return next((move for move in self.moves(board) if move[0] == best[0] and move != best), None)

    def words(self) -> Sequence[str]:
        return list(_NAMES)


def _text(stacks: Stacks) -> str:
    return ", ".join(" ".join(stack) for stack in stacks)


def _stacked(names: str, rng: Random) -> Stacks:
    """Blocks put one after the other on the table or on one of the stacks there are, in random order."""
    stacks: list[str] = []
    for block in rng.sample(names, len(names)):
        at = rng.randrange(len(stacks) + 1)
        stacks[at : at + 1] = [(stacks[at] if at < len(stacks) else "") + block]
    return tuple(sorted(stacks))


def _next(stacks: Stacks) -> Iterator[tuple[str, Stacks]]:
    """Every move with the stacks that it leaves."""
    for source in stacks:
        block, rest = source[-1], [source[:-1]] if len(source) > 1 else []
        others = [stack for stack in stacks if stack != source]
        for target in others:
            kept = [stack for stack in others if stack != target]
            yield f"{block} to {target[-1]}", tuple(sorted([*kept, *rest, target + block]))
        if rest:
            yield f"{block} to {_TABLE}", tuple(sorted([*others, *rest, block]))


@lru_cache(maxsize=32)
def _distances(wanted: Stacks) -> dict[Stacks, int]:
    """Stacks → fewest moves to those wanted; every move has a move back, so it is counted from there."""
    result = {wanted: 0}
    queue = deque([wanted])
    while queue:
        stacks = queue.popleft()
        for _, after in _next(stacks):
            if after not in result:
                result[after] = result[stacks] + 1
                queue.append(after)
    return result


def _renamed(board: Blocks, order: str) -> Blocks:
    """The board when the blocks are called a, b, … in that order."""
    names = str.maketrans(order, _NAMES[: len(order)])
    stacks, wanted = (tuple(sorted(s.translate(names) for s in side)) for side in (board.stacks, board.wanted))
    return Blocks(stacks, wanted)
