"""References about lists in order."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: RUF005

from agent_envs.code.tasks.inputs import (
    args,
    between,
    listed,
    number,
    numbers,
    one_of,
    ordered,
    same_or,
    small,
    smalls,
    some_numbers,
    together,
    words,
)
from agent_envs.code.tasks.reference import reference


@reference(
    "Two rising lists as one rising list.", "把两个升序列表合成一个升序列表。", args(ordered(smalls), ordered(smalls))
)
def merge(a, b):
    result = []
    i = 0
    for item in b:
        while i < len(a) and a[i] <= item:
            result.append(a[i])
            i += 1
        result.append(item)
    return result + a[i:]


@reference("The even items first, then the odd ones.", "先列偶数项，再列奇数项。", args(numbers))
def even_first(items):
    even = []
    odd = []
    for item in items:
        if item % 2 == 0:
            even.append(item)
        else:
            odd.append(item)
    return even + odd


@reference("The items with the first and the last one swapped.", "交换第一项和最后一项。", args(numbers))
def swap_ends(items):
    if len(items) > 1:
        first = items[0]
        items[0] = items[-1]
        items[-1] = first
    return items


@reference(
    "The items after one pass: swap neighbours in the wrong order.",
    "从左到右扫一遍，交换顺序不对的相邻项。",
    args(smalls),
)
def bubble_pass(items):
    for i in range(len(items) - 1):
        if items[i] > items[i + 1]:
            large = items[i]
            items[i] = items[i + 1]
            items[i + 1] = large
    return items


@reference(
    "The place of item in rising items, -1 when it is not there.",
    "item 在升序列表中的位置，没有则为 -1。",
    together(same_or(lambda rng: sorted(rng.sample(range(12), rng.randint(0, 6))), between(0, 11))),
)
def find_sorted(items, item):
    low = 0
    high = len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == item:
            return middle
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle - 1
    return -1


@reference(
    "The middle item in rising order; of two the smaller.", "排序后的中间项，有两个时取较小的。", args(some_numbers)
)
def median(items):
    items = sorted(items)
    middle = (len(items) - 1) // 2
    return items[middle]


@reference(
    "The rising items with number put in its place.", "把 number 放进升序列表的正确位置。", args(ordered(smalls), small)
)
def insert_sorted(items, number):
    i = 0
    while i < len(items):
        if items[i] > number:
            break
        i += 1
    return items[:i] + [number] + items[i:]


@reference("The items with all 0 moved to the end.", "把所有的 0 移到末尾。", args(listed(one_of(0, 0, 1, 2, 3), 0, 6)))
def zeros_last(items):
    result = []
    zeros = []
    for item in items:
        if item == 0:
            zeros.append(item)
        else:
            result.append(item)
    return result + zeros


@reference("The items that are larger than all items after them.", "比后面所有项都大的项。", args(smalls))
def leaders(items):
    result = []
    for i in range(len(items)):
        rest = items[i + 1 :]
        if rest == [] or items[i] > max(rest):
            result.append(items[i])
    return result


@reference(
    "The item nearest to number; of two the first.",
    "与 number 最接近的项，有两个时取第一个。",
    args(some_numbers, number),
)
def nearest(items, number):
    best = items[0]
    for item in items[1:]:
        if abs(item - number) < abs(best - number):
            best = item
    return best


@reference(
    "The words in order of length; of equal length as they stood.",
    "按长度排列各词，长度相同的保持原顺序。",
    args(words),
)
def by_length(words):
    result = []
    for word in words:
        i = len(result)
        while i > 0 and len(result[i - 1]) > len(word):
            i -= 1
        result.insert(i, word)
    return result
