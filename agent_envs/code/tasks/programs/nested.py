"""References about lists in lists, and references that call themselves on them."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: RUF005

from agent_envs.code.tasks.inputs import args, between, digit, either, listed, nested, small, smalls, some_numbers
from agent_envs.code.tasks.reference import reference


@reference("The sum of all numbers in nested lists.", "嵌套列表中所有数之和。", args(nested))
def deep_sum(items):
    total = 0
    for item in items:
        if isinstance(item, list):
            total += deep_sum(item)
        else:
            total += item
    return total


@reference(
    "How deep lists stand in lists; a list without lists is 1.", "列表嵌套的层数，没有内层列表的为 1。", args(nested)
)
def deep_level(items):
    best = 0
    for item in items:
        if isinstance(item, list):
            best = max(best, deep_level(item))
    return best + 1


@reference("The numbers of nested lists in one list.", "把嵌套列表中的数放进一个列表。", args(nested))
def flatten(items):
    result = []
    for item in items:
        if isinstance(item, list):
            result += flatten(item)
        else:
            result.append(item)
    return result


@reference(
    "All lists that leaving out items can give, those without the last item first.",
    "去掉若干项得到的所有列表，先列不含最后一项的。",
    args(either(listed(digit, 0, 3), listed(digit, 1, 3))),
)
def all_parts(items):
    if items == []:
        return [[]]
    result = all_parts(items[:-1])
    for part in list(result):
        result.append(part + [items[-1]])
    return result


@reference("The largest item.", "最大的项。", args(some_numbers))
def largest(items):
    if len(items) == 1:
        return items[0]
    rest = largest(items[1:])
    if items[0] > rest:
        return items[0]
    return rest


@reference("The items in rising order.", "按升序排列各项。", args(smalls))
def sort_items(items):
    if len(items) < 2:
        return items
    first = items[0]
    low = [item for item in items[1:] if item < first]
    high = [item for item in items[1:] if item >= first]
    return sort_items(low) + [first] + sort_items(high)


@reference("How often number stands in nested lists.", "number 在嵌套列表中出现的次数。", args(nested, between(0, 9)))
def deep_count(items, number):
    total = 0
    for item in items:
        if isinstance(item, list):
            total += deep_count(item, number)
        elif item == number:
            total += 1
    return total


@reference(
    "True when some of the items have this sum; none of them have the sum 0.",
    "能从 items 中选出若干项使和为 total 时为 True。",
    args(listed(between(1, 6), 0, 4), between(0, 12)),
)
def can_make(items, total):
    if total == 0:
        return True
    if items == []:
        return False
    if can_make(items[1:], total - items[0]):
        return True
    return can_make(items[1:], total)


@reference(
    "The items with two neighbours swapped each: 0 with 1, 2 with 3 and so on.",
    "两两交换相邻项：0 与 1，2 与 3，依此类推。",
    args(smalls),
)
def swap_pairs(items):
    if len(items) < 2:
        return items
    return [items[1], items[0]] + swap_pairs(items[2:])


@reference("The nested lists with each number doubled.", "把嵌套列表中的每个数加倍。", args(nested))
def deep_double(items):
    result = []
    for item in items:
        if isinstance(item, list):
            result.append(deep_double(item))
        else:
            result.append(2 * item)
    return result


@reference(
    "The first place of item in items from start on, -1 when there is none.",
    "从 start 起 item 第一次出现的位置，没有则为 -1。",
    args(smalls, small, between(0, 3)),
)
def find_from(items, item, start):
    if start >= len(items):
        return -1
    if items[start] == item:
        return start
    return find_from(items, item, start + 1)
