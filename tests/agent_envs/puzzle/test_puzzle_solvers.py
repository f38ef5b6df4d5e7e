"""Every solver against another one, written for the test; splits are disjoint; boards and moves by hand."""

from collections import deque
from fractions import Fraction
from functools import cache
from itertools import combinations, combinations_with_replacement, permutations
from random import Random
from typing import Any

import pytest

from agent_envs.actions import ActionError
from agent_envs.puzzle.arithmetic import Numbers, fewest_products
from agent_envs.puzzle.blocks import Blocks, BlocksWorld
from agent_envs.puzzle.config import PuzzleConfig, PuzzleKind
from agent_envs.puzzle.countdown import Countdown
from agent_envs.puzzle.env import PuzzleEnv
from agent_envs.puzzle.protocol import Puzzle
from agent_envs.puzzle.puzzles import puzzle_of
from agent_envs.puzzle.queens import NQueens, Queens
from agent_envs.puzzle.sokoban import Board, Room, Sokoban
from agent_envs.puzzle.sudoku4 import Sudoku4
from agent_envs.puzzle.tasks import split_of


# ---- numbers: every value of every expression, negative ones too, by splitting what there is in two ----------------
@cache
def values(numbers: tuple[int, ...], whole: bool) -> frozenset[Fraction]:
    if len(numbers) == 1:
        return frozenset([Fraction(numbers[0])])
    found: set[Fraction] = set()
    for some, others in halves(numbers):
        for a in values(some, whole):
            for b in values(others, whole):
                found |= {a + b, a - b, b - a, a * b}
                found |= {x / y for x, y in ((a, b), (b, a)) if y and not (whole and (x / y).denominator > 1)}
    return frozenset(found)


def halves(numbers: tuple[int, ...]) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    found = set()
    for size in range(1, len(numbers) // 2 + 1):
        for places in combinations(range(len(numbers)), size):
            rest = tuple(n for at, n in enumerate(numbers) if at not in places)
            found.add((tuple(numbers[at] for at in places), rest))
    return found


def reaches(numbers: tuple[int, ...], target: int) -> bool:
    """Whether fractions and all four signs lead to the target: the last sign is looked for instead of tried."""
    for some, others in halves(numbers):
        theirs = values(others, False)
        for a in values(some, False):
            if theirs & {target - a, a - target, a + target}:
                return True
            if a and theirs & {target / a, a / target, a * target}:
                return True
    return False


def test_game24_has_all_1362_quadruples_and_no_other_each_in_one_split() -> None:
    wanted = {q for q in combinations_with_replacement(range(13, 0, -1), 4) if reaches(q, 24)}
    assert len(wanted) == 1362
    env = PuzzleEnv(PuzzleConfig(kind=PuzzleKind.GAME24))
    splits = {split: [task.data.board.left for task in env.tasks(split)] for split in ("train", "valid", "test")}
    assert sum(map(len, splits.values())) == 1362 and set().union(*splits.values()) == wanted
    assert min(map(len, splits.values())) > 200
    assert (13, 13, 13, 13) not in wanted and (8, 8, 3, 3) in wanted, "8/(3-8/3) needs fractions"


@pytest.mark.runs
def test_game24_learns_from_larger_numbers_and_is_tested_on_its_own_all_the_same() -> None:
    own, more = (PuzzleEnv(PuzzleConfig(kind=PuzzleKind.GAME24, largest=largest)) for largest in (None, 20))
    for split in ("valid", "test"):
        assert [task.data.board for task in more.tasks(split)] == [task.data.board for task in own.tasks(split)]
    held = {task.data.board for split in ("valid", "test") for task in own.tasks(split)}
    tasks = [more.tasks("train")[at] for at in range(600)]
    boards = {task.data.board for task in tasks}
    assert len(more.tasks("train")) == 20000 and len(boards) > 500 and not boards & held
    assert {max(board.left) for board in boards} >= set(range(13, 21))
    for task in tasks[:60]:
        assert reaches(task.data.board.left, 24)
        needed = fewest_products(task.data.board.left, 24, whole=False)
        assert needed is not None and task.level == 1 + min(needed, 2)


def test_countdown_against_every_expression() -> None:
    rng, found = Random(0), set()
    for _ in range(150):
        numbers, target = tuple(sorted((rng.randint(1, 9) for _ in range(4)), reverse=True)), rng.randint(1, 99)
        can = fewest_products(numbers, target, whole=True) is not None
        assert can == (target in values(numbers, True)), (numbers, target)
        found.add(can)
    assert found == {True, False}


@pytest.mark.parametrize(
    ("numbers", "target", "products"),
    [
        ((9, 7, 5, 2), 1, 0),
        ((9, 7, 5, 2), 23, 0),
        ((5, 4, 3, 2), 15, 1),
        ((9, 9, 4, 3), 99, 2),
        ((1, 1, 1, 1), 5, None),
    ],
)
def test_fewest_products_by_hand(numbers: tuple[int, ...], target: int, products: int | None) -> None:
    assert fewest_products(numbers, target, whole=True) == products


def test_fractions_are_exact_and_can_be_written() -> None:
    puzzle: Puzzle[Any] = puzzle_of(PuzzleConfig(kind=PuzzleKind.GAME24))
    board = Numbers((8, 8, 3, 3), 24)
    for move, shown in (("8/3", "8 3 8/3"), ("3-(8/3)", "8 1/3"), ("8/(1/3)", "24")):
        assert puzzle.best(board) is not None and move in puzzle.moves(board)
        board = puzzle.play(board, move)
        assert puzzle.show(board) == f"numbers: {shown}, target: 24"
    assert puzzle.solved(board)
    with pytest.raises(ActionError, match="put the fraction in parentheses"):
        puzzle.play(Numbers((8, Fraction(8, 3), 2, Fraction(3, 2)), 24), "8/3/2")


# ---- every other puzzle: a search forward through its own rules -------------------------------------------------
def forward(puzzle: Puzzle[Any], board: Any) -> int | None:
    """The fewest moves, by breadth-first search over `moves` and `play`."""
    seen, queue = {board}, deque([(board, 0)])
    while queue:
        here, moves = queue.popleft()
        if puzzle.solved(here):
            return moves
        for move in puzzle.moves(here):
            after = puzzle.play(here, move)
            if after not in seen:
                seen.add(after)
                queue.append((after, moves + 1))
    return None


def wandered(puzzle: Puzzle[Any], level: int, rng: Random, moves: int) -> Any:
    board = puzzle.draw(rng, level)
    for _ in range(moves):
        if legal := puzzle.moves(board):
            board = puzzle.play(board, rng.choice(legal))
    return board


@pytest.mark.parametrize(
    ("kind", "level", "boards", "lost"),
    [
        (PuzzleKind.SOKOBAN, 1, 20, True),
        (PuzzleKind.SOKOBAN, 2, 20, True),
        (PuzzleKind.SOKOBAN, 3, 3, False),
        (PuzzleKind.BLOCKS, 1, 30, False),
        (PuzzleKind.SUDOKU4, 1, 30, True),
        (PuzzleKind.QUEENS, 1, 40, True),
        (PuzzleKind.COUNTDOWN, 2, 40, True),
    ],
)
def test_distances_against_a_search_forward(kind: PuzzleKind, level: int, boards: int, lost: bool) -> None:
    puzzle, rng, found = puzzle_of(PuzzleConfig(kind=kind)), Random(1), []
    for number in range(boards):
        board = wandered(puzzle, level, rng, number % 5 * 6)
        found.append(forward(puzzle, board))
        assert puzzle.distance(board) == found[-1], board
        assert (puzzle.distance(board) == 0) == puzzle.solved(board)
    assert (None in found) or not lost
    assert any(found)


def test_the_search_forward_would_notice() -> None:
    puzzle, board = Countdown(), Numbers((9, 6, 5, 2), 6)
    assert forward(puzzle, board) == 3 == puzzle.distance(board)
    assert forward(puzzle, Numbers((9, 6, 5, 2), 95)) is None


def test_queens_against_all_permutations() -> None:
    board = Queens((-1, 3, -1, -1, -1, -1))
    whole = [
        columns
        for columns in permutations(range(6))
        if columns[1] == 3 and all(abs(columns[a] - columns[b]) != b - a for a, b in combinations(range(6), 2))
    ]
    puzzle = NQueens()
    for move in puzzle.moves(board):
        after = puzzle.play(board, move)
        fits = any(all(c in (-1, w) for c, w in zip(after.columns, columns, strict=True)) for columns in whole)
        assert (puzzle.distance(after) is not None) == fits
    with pytest.raises(ActionError, match="the queen on r2c4 attacks that square"):
        puzzle.play(board, "r4c6")


@pytest.mark.parametrize("level", [1, 2, 3])
def test_every_sudoku_has_one_solution(level: int) -> None:
    puzzle, rng = Sudoku4(), Random(level)
    for _ in range(5):
        grid = puzzle.draw(rng, level)
        right = 0
        while not puzzle.solved(grid):  # at the first empty cell just one digit leads on
            cell = grid.index(0)
            name = f"r{cell // 4 + 1}c{cell % 4 + 1}"
            lead = [
                m
                for m in puzzle.moves(grid)
                if m.startswith(name) and puzzle.distance(puzzle.play(grid, m)) is not None
            ]
            assert len(lead) == 1
            grid, right = puzzle.play(grid, lead[0]), right + 1
        rows, columns = [grid[at : at + 4] for at in range(0, 16, 4)], [grid[at::4] for at in range(4)]
        quarters = [(*grid[at : at + 2], *grid[at + 4 : at + 6]) for at in (0, 2, 8, 10)]
        assert all(sorted(unit) == [1, 2, 3, 4] for unit in (*rows, *columns, *quarters)) and right >= 4


def test_sokoban_by_hand() -> None:
    puzzle = Sokoban()
    room = Room(4, frozenset({(3, 3)}), ((0, 3),))
    board = Board(room, (2, 1), ((1, 1),))
    assert puzzle.picture(board).splitlines()[1:] == ["######", "#...x#", "#.o..#", "#.@..#", "#...##", "######"]
    assert puzzle.show(board) == "box: up 1, same column; its goal: up 1, right 2; free: down left right; push: up"
    assert puzzle.distance(board) == 5, "up, then round its left side, then right twice: left, up, right, right"
    in_corner = puzzle.play(puzzle.play(Board(room, (1, 2), ((1, 1),)), "left"), "down")
    assert puzzle.distance(in_corner) is None, "in the left column it can never come to the right one"
    with pytest.raises(ActionError, match="the box left of you cannot be pushed"):
        puzzle.play(Board(room, (1, 1), ((1, 0),)), "left")
    with pytest.raises(ActionError, match="there is a wall down of you"):
        puzzle.play(Board(room, (2, 3), ((1, 1),)), "down")


def test_blocks_by_hand() -> None:
    puzzle = BlocksWorld()
    board = Blocks(("ab", "c"), ("ca",))  # whatever is wanted: only the texts are looked at
    for text, reason in (
        ("a to c", "b is on a"),
        ("c to table", "c cannot be put there: it would be on table as before"),
        ("c to c", "it would be on itself"),
    ):
        with pytest.raises(ActionError, match=reason):
            puzzle.play(board, text)
    assert puzzle.play(board, " B to C ").stacks == ("a", "cb")
    assert puzzle.distance(Blocks(("ab", "c"), ("ba", "c"))) == 2


def test_a_quadruple_of_game24_is_in_the_same_split_of_countdown() -> None:
    # A policy may learn countdown with numbers to 13 first and game24 afterwards.
    countdown = PuzzleEnv(PuzzleConfig(kind=PuzzleKind.COUNTDOWN, largest=13)).puzzle
    for split in ("train", "valid", "test"):
        boards = [task.data.board for task in PuzzleEnv(PuzzleConfig(kind=PuzzleKind.GAME24)).tasks(split)]
        assert {split_of(countdown.key(board)) for board in boards} == {split}


@pytest.mark.parametrize("kind", sorted(set(PuzzleKind) - {PuzzleKind.GAME24}))
def test_splits_share_no_problem_not_even_in_a_mirror(kind: PuzzleKind) -> None:
    env = PuzzleEnv(PuzzleConfig(kind=kind, levels=(1, 2, 3)))
    keys = {
        split: {env.puzzle.key(env.tasks(split)[at].data.board) for at in range(150)}
        for split in ("train", "valid", "test")
    }
    assert not keys["train"] & keys["valid"] and not keys["train"] & keys["test"] and not keys["valid"] & keys["test"]
    assert all(len(found) > 40 for found in keys.values())
    assert keys["train"] & {env.puzzle.key(env.tasks("train")[at].data.board) for at in range(5)}, "it would be seen"


def test_keys_are_those_of_mirrors_and_other_names() -> None:
    room = Room(4, frozenset({(0, 1)}), ((0, 3),))
    mirrored = Room(4, frozenset({(0, 2)}), ((0, 0),))
    assert Sokoban().key(Board(room, (2, 1), ((1, 1),))) == Sokoban().key(Board(mirrored, (2, 2), ((1, 2),)))
    assert Sokoban().key(Board(room, (2, 1), ((1, 1),))) != Sokoban().key(Board(room, (2, 2), ((1, 1),)))
    one, other = Blocks(("ab", "c"), ("a", "bc")), Blocks(("a", "cb"), ("ba", "c"))
    assert BlocksWorld().key(one) == BlocksWorld().key(other) != BlocksWorld().key(Blocks(("abc",), ("a", "bc")))
    assert NQueens().key(Queens((2, -1, -1, -1))) == NQueens().key(Queens((-1, -1, -1, 1)))
    grid = (1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    renamed = (4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4)
    assert Sudoku4().key(grid) == Sudoku4().key(renamed) != Sudoku4().key((*grid[:15], 2))
