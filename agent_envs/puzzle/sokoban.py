"""Sokoban: push boxes onto goals in a small room. Nothing can be pulled, so a push can be fatal.

Invariant: distances count steps and pushes alike, and are computed backwards from every solved position of a room, so
a position without one is a deadlock.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from agent_envs.actions import ActionError, Verb
from agent_envs.puzzle.protocol import Puzzle
from agent_envs.puzzle.squares import Cell, turned

_WAYS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_SHAPES = {1: (5, 0, 1), 2: (5, 3, 1), 3: (5, 2, 2)}
"""Level → side of the room, walls inside, boxes."""
_ROOMS = 64
"""Rooms of a level: many puzzles share a room, and its distances."""


@dataclass(frozen=True)
class Room:
    """What does not move."""

    side: int
    """Rows and columns."""
    walls: frozenset[Cell]
    """Walls inside; everything outside is wall, too."""
    goals: tuple[Cell, ...]
    """Where the boxes belong, in order; any box on any goal."""

    def free(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.side and 0 <= cell[1] < self.side and cell not in self.walls


@dataclass(frozen=True)
class Board:
    """Where everything stands."""

    room: Room
    you: Cell
    boxes: tuple[Cell, ...]
    """In order."""


class Sokoban(Puzzle[Board]):
    """Level 1 is an empty room with one box, level 2 has walls, level 3 two boxes."""

    verb = Verb("GO", "way")
    goal = "Push every box onto a goal. Go up, down, left or right; going against a box pushes it."
    longest = 20

    def draw(self, rng: Random, level: int) -> Board:
        while True:
            room = _room(level, rng.randrange(_ROOMS))
            starts = _starts(room, self.longest)
            if starts:
                return rng.choice(starts)

    def key(self, board: Board) -> str:
        """The least of the eight pictures that mirrors and quarter turns make of it."""
        side, cells = board.room.side, (board.room.walls, board.room.goals, board.boxes, (board.you,))
        return min(repr([sorted(turned(cell, side, way) for cell in group) for group in cells]) for way in range(8))

    def picture(self, board: Board) -> str:
        reach = range(-1, board.room.side + 1)
        rows = ["".join(_sign(board, (r, c)) for c in reach) for r in reach]
        return "\n".join(["# wall, @ you, o box, x goal, * box on goal", *rows])

    def show(self, board: Board) -> str:
        boxes = []
        for box in board.boxes:
            near = min(board.room.goals, key=lambda goal: (_far(box, goal), goal))
            boxes.append(f"box: {_relative(board.you, box)}; its goal: {_relative(box, near)}")
        pushes = [way for way in self.moves(board) if _next(board.you, way) in board.boxes]
        steps = [way for way in self.moves(board) if way not in pushes]
        return f"{'; '.join(boxes)}; free: {' '.join(steps) or 'none'}; push: {' '.join(pushes) or 'none'}"

    def moves(self, board: Board) -> Sequence[str]:
        return [] if self.solved(board) else [way for way in _WAYS if _moved(board, way) is not None]

    def solved(self, board: Board) -> bool:
        return board.boxes == board.room.goals

    def distance(self, board: Board) -> int | None:
        return _distances(board.room).get((board.you, board.boxes))

    def _play(self, board: Board, text: str) -> Board:
        way = text.strip().casefold()
        if way not in _WAYS:
            raise ActionError("a way is up, down, left or right", "方向是 up、down、left 或 right")
        there = _moved(board, way)
        if there is not None:
            return there
        if _next(board.you, way) in board.boxes:
            raise ActionError(f"the box {way} of you cannot be pushed", f"{way} 方向的箱子推不动")
        raise ActionError(f"there is a wall {way} of you", f"{way} 方向是墙")

    def mistake(self, board: Board) -> str | None:
        """In line with a box it walks straight up to it and pushes it, where it should have walked around.

        It does not notice that a box is stuck.
        """
        best = self.best(board)
        if best is not None and _next(board.you, best) in board.boxes:
            return None
        line = [box for box in board.boxes if best is None or 0 in (box[0] - board.you[0], box[1] - board.you[1])]
        nearer = (
            way for way in self.moves(board) if any(_far(_next(board.you, way), b) < _far(board.you, b) for b in line)
        )
        return next((way for way in nearer if way != best), None)

    def thought(self, board: Board, move: str) -> str:
        """The next push that comes of it."""
        way: str | None = move
        while way is not None and _next(board.you, way) not in board.boxes:
            board = self.play(board, way)
            way = self.best(board)
        return f"push {way}" if way else ""

    def words(self) -> Sequence[str]:
        return [*_WAYS, *(f"{way} {n}" for way in _WAYS for n in range(1, 5)), "same row", "same column"]


def _next(cell: Cell, way: str) -> Cell:
    down, right = _WAYS[way]
    return cell[0] + down, cell[1] + right


def _moved(board: Board, way: str) -> Board | None:
    there = _next(board.you, way)
    if not board.room.free(there):
        return None
    if there not in board.boxes:
        return Board(board.room, there, board.boxes)
    beyond = _next(there, way)
    if not board.room.free(beyond) or beyond in board.boxes:
        return None
    return Board(board.room, there, tuple(sorted(beyond if box == there else box for box in board.boxes)))


@lru_cache(maxsize=256)
def _distances(room: Room) -> dict[tuple[Cell, tuple[Cell, ...]], int]:
    """(you, boxes) → fewest moves to a solved position; deadlocks are not in it."""
    cells = [(r, c) for r in range(room.side) for c in range(room.side) if room.free((r, c))]
    result = {(cell, room.goals): 0 for cell in cells if cell not in room.goals}
    queue = deque(result)
    while queue:
        state = queue.popleft()
        for before in _before(room, *state):
            if before not in result and before[1] != room.goals:
                result[before] = result[state] + 1
                queue.append(before)
    return result


def _before(room: Room, you: Cell, boxes: tuple[Cell, ...]) -> Iterator[tuple[Cell, tuple[Cell, ...]]]:
    """The positions from which one move leads here: a step back, with or without the box that was pushed."""
    for down, right in _WAYS.values():
        back, ahead = (you[0] - down, you[1] - right), (you[0] + down, you[1] + right)
        if room.free(back) and back not in boxes:
            yield back, boxes
            if ahead in boxes:
                yield back, tuple(sorted(you if box == ahead else box for box in boxes))


@lru_cache(maxsize=256)
def _room(level: int, number: int) -> Room:
    side, walls, boxes = _SHAPES[level]
    rng = Random(f"sokoban-room-{level}-{number}")
    cells = [(r, c) for r in range(side) for c in range(side)]
    picked = rng.sample(cells, walls + boxes)
    return Room(side, frozenset(picked[:walls]), tuple(sorted(picked[walls:])))


@lru_cache(maxsize=256)
def _starts(room: Room, longest: int) -> tuple[Board, ...]:
    """Every position of a room from which it takes at least six moves, and no box is on a goal."""
    return tuple(
        Board(room, you, boxes)
        for (you, boxes), moves in _distances(room).items()
        if 6 <= moves <= longest and not set(boxes) & set(room.goals)
    )


def _far(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _relative(here: Cell, there: Cell) -> str:
    down, right = there[0] - here[0], there[1] - here[1]
    rows = f"down {down}" if down > 0 else f"up {-down}" if down else "same row"
    columns = f"right {right}" if right > 0 else f"left {-right}" if right else "same column"
    return f"{rows}, {columns}"


def _sign(board: Board, cell: Cell) -> str:
    if not board.room.free(cell):
        return "#"
    if cell in board.boxes:
        return "*" if cell in board.room.goals else "o"
    return "@" if cell == board.you else "x" if cell in board.room.goals else "."
