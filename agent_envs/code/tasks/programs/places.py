"""References about the places and runs of a list."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: SIM110

from agent_envs.code.tasks.inputs import (
    args,
    between,
    either,
    listed,
    ordered,
    small,
    smalls,
    some_numbers,
    some_smalls,
)
from agent_envs.code.tasks.reference import reference


@reference("The first place of the largest item.", "最大项第一次出现的位置。", args(either(some_numbers, some_smalls)))
def place_of_max(items):
    best = 0
    for i in range(1, len(items)):
        if items[i] > items[best]:
            best = i
    return best


@reference(
    "True when no item is smaller than the one before.",
    "没有一项小于前一项时为 True。",
    args(either(ordered(smalls), smalls)),
)
def is_rising(items):
    last = 0
    for item in items:
        if item < last:
            return False
        last = item
    return True


@reference(
    "The length of the longest run of equal items.", "最长的一段相等项的长度。", args(listed(between(0, 2), 0, 8))
)
def longest_run(items):
    best = 0
    size = 0
    for i in range(len(items)):
        if i > 0 and items[i] != items[i - 1]:
            size = 0
        size += 1
        best = max(best, size)
    return best


@reference(
    "The smallest number of 1, 2, 3 … that is not in items.",
    "1、2、3……中不在 items 里的最小数。",
    args(listed(between(1, 4), 0, 7)),
)
def first_missing(items):
    number = 1
    while number in items:
        number += 1
    return number


@reference(
    "True when part stands in items without a gap.",
    "part 连续出现在 items 中时为 True。",
    args(listed(between(0, 1), 0, 6), listed(between(0, 1), 0, 3)),
)
def has_part(items, part):
    size = len(part)
    for i in range(len(items) - size + 1):
        if items[i : i + size] == part:
            return True
    return False


@reference(
    "How many items from the start have a sum of at most limit.",
    "从头取项，和不超过 limit 时最多能取几项。",
    args(listed(between(1, 5), 0, 7), between(0, 12)),
)
def how_many_fit(items, limit):
    total = 0
    taken = 0
    for item in items:
        if total + item > limit:
            break
        total += item
        taken += 1
    return taken


@reference(
    "The place of the last even item, -1 when there is none.", "最后一个偶数项的位置，没有则为 -1。", args(smalls)
)
def last_even(items):
    place = -1
    for i in range(len(items)):
        if items[i] % 2 == 0:
            place = i
    return place


@reference(
    "The product of the items before the first 0; 1 when there are none.",
    "第一个 0 之前各项的乘积，没有项时为 1。",
    args(listed(between(0, 4), 0, 6)),
)
def until_zero(items):
    result = 1
    for item in items:
        if item == 0:
            break
        result *= item
    return result


@reference(
    "The last item before the first one that is larger than limit, else -1.",
    "第一个大于 limit 的项之前的最后一项，没有则为 -1。",
    args(smalls, small),
)
def last_before(items, limit):
    last = -1
    for item in items:
        if item > limit:
            break
        last = item
    return last


@reference(
    "How many items stand before the first other; all when there is none.",
    "第一个 other 之前有几项，没有 other 则为全部。",
    args(listed(between(0, 3), 0, 6), between(0, 3)),
)
def count_until(items, other):
    total = 0
    for item in items:
        if item == other:
            break
        total += 1
    return total


@reference(
    "The place of the first negative item, -1 when there is none.",
    "第一个负数项的位置，没有则为 -1。",
    args(listed(between(-3, 9), 0, 6)),
)
def first_negative(items):
    place = -1
    for i in range(len(items)):
        if items[i] < 0:
            place = i
            break
    return place
