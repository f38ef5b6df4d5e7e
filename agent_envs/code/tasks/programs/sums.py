"""References about lists that give a number or a verdict."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors

from agent_envs.code.tasks.inputs import args, between, grid, listed, number, numbers, small, smalls, square
from agent_envs.code.tasks.reference import reference


@reference("The largest step from an item to the next one, else 0.", "相邻两项之差的最大值，至少为 0。", args(numbers))
def largest_gap(items):
    best = 0
    for i in range(len(items) - 1):
        gap = items[i + 1] - items[i]
        if gap > best:
            best = gap
    return best


@reference(
    "The second largest of the different values, -1 when there is none.",
    "不同的值中第二大的，没有则为 -1。",
    args(smalls),
)
def second_largest(items):
    values = sorted(set(items))
    if len(values) < 2:
        return -1
    return values[-2]


@reference("How many items are larger than limit.", "大于 limit 的项数。", args(numbers, number))
def count_above(items, limit):
    total = 0
    for item in items:
        if item > limit:
            total += 1
    return total


@reference(
    "How many items are larger than both items beside them.", "比左右两项都大的项数。", args(listed(small, 3, 8))
)
def count_peaks(items):
    total = 0
    for i in range(1, len(items) - 1):
        left = items[i - 1]
        right = items[i + 1]
        if items[i] > left and items[i] > right:
            total += 1
    return total


@reference("The sum of the products of items at the same place.", "同一位置的项相乘后求和。", args(smalls, smalls))
def dot(a, b):
    total = 0
    for i in range(min(len(a), len(b))):
        total += a[i] * b[i]
    return total


@reference(
    "How many pairs of places have items with this sum.", "有多少对位置的项之和为 total。", args(smalls, between(2, 8))
)
def count_pairs(items, total):
    found = 0
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            if items[i] + items[j] == total:
                found += 1
    return found


@reference("The largest sum of a row.", "各行之和的最大值。", args(grid(small)))
def best_row(rows):
    best = 0
    for row in rows:
        total = 0
        for item in row:
            total += item
        best = max(best, total)
    return best


@reference(
    "The sum from the first item of the first row down to the right.", "从左上到右下对角线之和。", args(square(small))
)
def diagonal_sum(rows):
    total = 0
    for i in range(len(rows)):
        total += rows[i][i]
    return total


@reference(
    "The largest sum of neighbours in a row, else 0.",
    "连续若干项之和的最大值，至少为 0。",
    args(listed(between(-5, 5), 1, 7)),
)
def best_sum(items):
    best = 0
    total = 0
    for item in items:
        total += item
        if total < 0:
            total = 0
        best = max(best, total)
    return best


@reference(
    "The sum of items start to end, end left out.",
    "从位置 start 到 end（不含）的各项之和。",
    args(numbers, between(0, 2), between(1, 6)),
)
def sum_between(items, start, end):
    total = 0
    for i in range(start, min(end, len(items))):
        total += items[i]
    return total


@reference(
    "The largest sum of size neighbours, 0 when there are too few.",
    "相邻 size 项之和的最大值，项数不足则为 0。",
    args(smalls, between(1, 3)),
)
def best_window(items, size):
    best = 0
    for i in range(len(items) - size + 1):
        best = max(best, sum(items[i : i + size]))
    return best


@reference(
    "The first item minus the second plus the third and so on.", "第一项减第二项加第三项，依此类推。", args(numbers)
)
def plus_minus(items):
    total = 0
    sign = 1
    for item in items:
        total += sign * item
        sign = -sign
    return total


@reference(
    "How many times the sign changes from an item to the next; 0 has none.",
    "相邻两项符号不同的次数（0 没有符号）。",
    args(listed(between(-3, 3), 2, 7)),
)
def sign_changes(items):
    total = 0
    for i in range(1, len(items)):
        if items[i - 1] * items[i] < 0:
            total += 1
    return total


@reference("The sum of the odd items.", "所有奇数项之和。", args(numbers))
def sum_odd_items(items):
    total = 0
    for item in items:
        if item % 2 == 0:
            continue
        total += item
    return total


@reference(
    "The sum of the sizes that go into a box of size limit, each put in when it still fits.",
    "依次放入 limit 大小的箱子，放得下才放，求放入的大小之和。",
    args(listed(between(1, 6), 1, 6), between(3, 12)),
)
def fill_box(sizes, limit):
    total = 0
    for size in sizes:
        if total + size > limit:
            continue
        total += size
    return total
