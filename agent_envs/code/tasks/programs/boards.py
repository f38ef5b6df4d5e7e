"""References about boards: rows of equal length."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import args, between, grid, small, square, together
from agent_envs.code.tasks.reference import reference

_marks = between(0, 2)
_bits = between(0, 1)


@reference(
    "How many rows have item more often than all others together.",
    "item 超过半数的行数。",
    args(grid(_bits, 2, 4), _bits),
)
def rows_with_most(board, item):
    total = 0
    for row in board:
        if 2 * row.count(item) > len(row):
            total += 1
    return total


@reference("The board with each row from its end to its start.", "把每一行左右反过来。", args(grid(small)))
def mirror_board(board):
    result = []
    for row in board:
        result.append(row[::-1])
    return result


@reference(
    "The sum of the items at the sides of the board, each once.", "棋盘四边上各项之和。", args(grid(small, 2, 4))
)
def side_sum(board):
    total = sum(board[0]) + sum(board[-1])
    for row in board[1:-1]:
        total += row[0] + row[-1]
    return total


@reference(
    "The sum of the diagonal from the top left, minus that of the one from the top right.",
    "从左上起的对角线之和减去从右上起的对角线之和。",
    args(square(small, 2, 4)),
)
def diagonal_minus(board):
    total = 0
    last = len(board) - 1
    for i in range(len(board)):
        total += board[i][i] - board[i][last - i]
    return total


def _mirrored(rng):
    board = square(_bits, 2, 3)(rng)
    if rng.random() < 0.5:
        for i in range(len(board)):
            for j in range(i):
                board[i][j] = board[j][i]
    return board


@reference(
    "True when row i at place j has the same as row j at place i, for all i and j.",
    "任意第 i 行第 j 列与第 j 行第 i 列都相同时为 True。",
    args(_mirrored),
)
def is_mirror(board):
    for i in range(len(board)):
        for j in range(i):
            if board[i][j] != board[j][i]:
                return False
    return True


@reference("The sum of each column.", "各列之和。", args(grid(small)))
def column_sums(board):
    result = [0] * len(board[0])
    for row in board:
        for j in range(len(row)):
            result[j] += row[j]
    return result


@reference(
    "The row and the column of the first place that has item, row by row; empty when there is none.",
    "逐行查找，第一个等于 item 的格子的行和列，没有则为空列表。",
    args(grid(between(0, 4), 2, 3), between(0, 4)),
)
def find_on_board(board, item):
    for i in range(len(board)):
        for j in range(len(board[i])):
            if board[i][j] == item:
                return [i, j]
    return []


def _lines(rng):
    size = rng.randint(2, 3)
    return [
        [rng.randint(0, 2)] * size if rng.random() < 0.5 else [rng.randint(0, 2) for _ in range(size)]
        for _ in range(size)
    ]


@reference(
    "The item of the first row that has only this item and no 0, else 0.",
    "第一个各项全相同且不为 0 的行的项，没有则为 0。",
    args(_lines),
)
def full_row(board):
    for row in board:
        if row[0] > 0 and row.count(row[0]) == len(row):
            return row[0]
    return 0


@reference("The smallest of the largest items of the rows.", "各行最大项中最小的。", args(grid(between(0, 9), 2, 3)))
def smallest_top(board):
    best = max(board[0])
    for row in board:
        best = min(best, max(row))
    return best


def _two_places(rng):
    board = grid(small, 2, 3)(rng)
    return board, rng.randrange(len(board)), rng.randrange(len(board))


@reference("The board with rows i and j swapped.", "交换第 i 行与第 j 行。", together(_two_places))
def swap_rows(board, i, j):
    row = board[i]
    board[i] = board[j]
    board[j] = row
    return board


@reference(
    "The board turned to the right: its left column, from the end, is the first row.",
    "把棋盘向右转：最左列从下到上成为第一行。",
    args(grid(small)),
)
def turn_board(board):
    result = []
    for j in range(len(board[0])):
        line = []
        for row in board:
            line.insert(0, row[j])
        result.append(line)
    return result


def _board_and_place(rng):
    board = grid(_bits, 2, 4)(rng)
    return board, rng.randrange(len(board[0])), rng.randrange(len(board))


@reference(
    "The sum of the places beside column x of row y, diagonal ones too, itself left out.",
    "第 y 行第 x 列周围各格之和，不含自身。",
    together(_board_and_place),
)
def sum_beside(board, x, y):
    total = 0
    for i in range(len(board)):
        for j in range(len(board[i])):
            if abs(i - y) <= 1 and abs(j - x) <= 1:
                total += board[i][j]
    return total - board[y][x]


@reference(
    "A board of the products of row and column, both counted from 1.",
    "各格为行号乘列号的棋盘，行列均从 1 数。",
    args(between(1, 4), between(1, 5)),
)
def times_board(height, width):
    board = []
    for i in range(1, height + 1):
        row = []
        for j in range(1, width + 1):
            row.append(i * j)
        board.append(row)
    return board


@reference(
    "The board without the rows that have no 0; as many rows of 0 come first in their place.",
    "去掉没有 0 的行，并在最前面补上同样多的全 0 行。",
    args(grid(between(0, 2), 2, 3)),
)
def drop_whole_rows(board):
    result = []
    for row in board:
        if 0 in row:
            result.append(row)
    while len(result) < len(board):
        result.insert(0, [0] * len(board[0]))
    return result


@reference(
    "All items, rows 0, 2, 4 … from the left, the others from the right.",
    "列出所有项：第 0、2、4……行从左到右，其余从右到左。",
    args(grid(small)),
)
def turn_walk(board):
    result = []
    for i in range(len(board)):
        if i % 2 == 0:
            result += board[i]
        else:
            result += board[i][::-1]
    return result


@reference(
    "The rows as text: . for 0, x for 1, o for 2.",
    "把各行写成文本：0 为 .，1 为 x，2 为 o。",
    args(grid(_marks)),
)
def draw_rows(board):
    result = []
    for row in board:
        line = ""
        for item in row:
            line += ".xo"[item]
        result.append(line)
    return result
