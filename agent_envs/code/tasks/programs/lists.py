"""References about lists made from lists."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import (
    args,
    between,
    count,
    grid,
    listed,
    numbers,
    one_of,
    same_or,
    small,
    smalls,
    together,
)
from agent_envs.code.tasks.reference import reference


@reference("The sums of the first 1, 2, 3 … items.", "前 1、2、3……项的和。", args(numbers))
def running_sums(items):
    total = 0
    result = []
    for item in items:
        total += item
        result.append(total)
    return result


@reference("The items with the first step ones moved to the end.", "把前 step 项移到末尾。", args(numbers, small))
def rotate(items, step):
    if items == []:
        return []
    step = step % len(items)
    return items[step:] + items[:step]


@reference(
    "The items in lists of size; the last may be shorter.", "每 size 项分成一组，最后一组可较短。", args(numbers, count)
)
def chunks(items, size):
    result = []
    for i in range(0, len(items), size):
        result.append(items[i : i + size])
    return result


@reference("The items that are not other.", "去掉所有等于 other 的项。", together(same_or(smalls, small)))
def without(items, other):
    result = []
    for item in items:
        if item != other:
            result.append(item)
    return result


@reference("Each value once, in the order of its first place.", "每个值只留一次，按首次出现的顺序。", args(smalls))
def each_once(items):
    result = []
    for item in items:
        if item not in result:
            result.append(item)
    return result


@reference("The sum of each item and the next one.", "每项与下一项之和。", args(numbers))
def sums_of_two(items):
    result = []
    for i in range(len(items) - 1):
        result.append(items[i] + items[i + 1])
    return result


@reference(
    "The items before the first one that is larger than limit.",
    "第一个大于 limit 的项之前的各项。",
    args(smalls, small),
)
def take_until(items, limit):
    result = []
    for item in items:
        if item > limit:
            break
        result.append(item)
    return result


@reference(
    "The items from the first one on that is not 0.",
    "从第一个不为 0 的项开始的各项。",
    args(listed(one_of(0, 0, 1, 2), 0, 6)),
)
def drop_zeros(items):
    start = 0
    while start < len(items) and items[start] == 0:
        start += 1
    return items[start:]


@reference("For each place the largest item so far.", "每个位置之前（含）最大的项。", args(numbers))
def highest_so_far(items):
    result = []
    for item in items:
        if result and result[-1] > item:
            item = result[-1]
        result.append(item)
    return result


@reference("The columns of rows as lists.", "把 rows 的各列变成列表。", args(grid(small)))
def columns(rows):
    result = []
    for j in range(len(rows[0])):
        column = []
        for row in rows:
            column.append(row[j])
        result.append(column)
    return result


@reference("The items of a that are also in b.", "a 中也在 b 里的项。", args(smalls, smalls))
def shared(a, b):
    result = []
    for item in a:
        if item not in b:
            continue
        result.append(item)
    return result


@reference(
    "The items at places 0, step, 2 step and so on.", "位置 0、step、2 step……上的项。", args(numbers, between(1, 3))
)
def every(items, step):
    result = []
    i = 0
    while i < len(items):
        result.append(items[i])
        i += step
    return result


@reference(
    "The items of the lists in one list, in order, without 0.",
    "把各列表的项按顺序放进一个列表，不要 0。",
    args(listed(listed(between(0, 3), 0, 3), 0, 4)),
)
def join_rows(rows):
    result = []
    for row in rows:
        for item in row:
            if item == 0:
                continue
            result.append(item)
    return result


@reference("Lists of equal neighbours.", "把相等的相邻项分成一组。", args(listed(between(0, 2), 0, 6)))
def group_equal(items):
    result = []
    for item in items:
        if result and result[-1][0] == item:
            result[-1].append(item)
        else:
            result.append([item])
    return result


@reference(
    "The items with each one set to 0 that lies outside low to high.",
    "不在 low 到 high 之间的项改为 0。",
    args(numbers, between(-3, 3), between(4, 12)),
)
def keep_between(items, low, high):
    result = []
    for item in items:
        if low <= item and item <= high:
            result.append(item)
        else:
            result.append(0)
    return result


@reference("The odd items, each doubled.", "奇数项，各乘以二。", args(numbers))
def odd_items(items):
    result = []
    for item in items:
        if item % 2 == 0:
            continue
        result.append(2 * item)
    return result
