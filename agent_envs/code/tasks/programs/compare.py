"""References that compare two lists, or take them as sets."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401, SIM110

from agent_envs.code.tasks.inputs import args, between, letter, listed, number, smalls, some_numbers, together
from agent_envs.code.tasks.reference import reference

_few = listed(between(0, 3), 0, 5)
_letters = listed(letter, 0, 4)


@reference(
    "The items of a and then of b that only one of the two lists has.",
    "只在 a、b 之一中的项，先 a 后 b。",
    args(_few, _few),
)
def only_in_one(a, b):
    result = []
    for item in a + b:
        if (item in a) != (item in b):
            result.append(item)
    return result


@reference(
    "True when b has every item of a.",
    "a 的每一项都在 b 中时为 True。",
    args(listed(between(0, 3), 0, 3), listed(between(0, 3), 0, 6)),
)
def all_in(a, b):
    for item in a:
        if item not in b:
            return False
    return True


@reference(
    "The items of a, then those of b that are not in a, each once.",
    "a 的各项，再接 b 中尚未出现的项（每个一次）。",
    args(_letters, _letters),
)
def add_new(a, b):
    result = list(a)
    for item in b:
        if item not in result:
            result.append(item)
    return result


@reference(
    "The items of a, each one replaced by the item of b at the same place when that is larger.",
    "a 的各项，若 b 同一位置的项更大则换成它。",
    args(smalls, smalls),
)
def larger_of_each(a, b):
    for i in range(min(len(a), len(b))):
        a[i] = max(a[i], b[i])
    return a


@reference(
    "True when a is smaller than b at the first place where they differ, or only shorter.",
    "在第一个不同处 a 较小，或没有不同而 a 较短时为 True。",
    args(listed(between(0, 2), 0, 4), listed(between(0, 2), 0, 4)),
)
def comes_before(a, b):
    for i in range(min(len(a), len(b))):
        if a[i] != b[i]:
            return a[i] < b[i]
    return len(a) < len(b)


def _turned(rng):
    a = [rng.randint(0, 3) for _ in range(rng.randint(2, 4))]
    i = rng.randrange(len(a))
    return a, a[i:] + a[:i] if rng.random() < 0.6 else rng.sample(a, len(a))


@reference(
    "True when b is a with some first items moved to the end.",
    "b 是把 a 开头若干项移到末尾得到的时为 True。",
    together(_turned),
)
def is_shift(a, b):
    for i in range(len(a)):
        if a[i:] + a[:i] == b:
            return True
    return False


@reference(
    "True when items has all of part in this order, with others between them or not.",
    "part 的各项按顺序出现在 items 中（中间可有其他项）时为 True。",
    args(listed(between(0, 2), 1, 3), listed(between(0, 2), 1, 6)),
)
def in_same_order(part, items):
    i = 0
    for item in items:
        if i < len(part) and part[i] == item:
            i += 1
    return i == len(part)


@reference(
    "The smallest distance between an item of a and one of b.",
    "a 的一项与 b 的一项之差的最小值。",
    args(some_numbers, some_numbers),
)
def least_gap(a, b):
    best = 99
    for first in a:
        for second in b:
            best = min(best, abs(first - second))
    return best


def _two_sides(rng):
    left = [rng.randint(0, 4) for _ in range(rng.randint(1, 3))]
    return left, rng.choice((left[::-1], [sum(left)], [rng.randint(0, 9)], [rng.randint(0, 4), 3], [1, 2]))


@reference(
    "Which side has the larger sum: left, right or same.",
    "哪一边的和较大：left、right 或 same（相等）。",
    together(_two_sides),
)
def larger_side(left, right):
    if sum(left) > sum(right):
        return "left"
    if sum(left) < sum(right):
        return "right"
    return "same"


@reference(
    "The sum of the items at whose place marks has True.",
    "marks 同一位置为 True 的 items 各项之和。",
    together(lambda rng: ([number(rng) for _ in range(4)], [rng.random() < 0.5 for _ in range(rng.randint(1, 4))])),
)
def sum_at_marks(items, marks):
    total = 0
    for i in range(len(marks)):
        if marks[i]:
            total += items[i]
    return total


@reference(
    "The items of old that new has not, and those of new that old has not.",
    "old 中有而 new 中没有的项，以及 new 中有而 old 中没有的项。",
    args(_letters, _letters),
)
def old_and_new(old, new):
    left = []
    for item in old:
        if item not in new:
            left.append(item)
    added = []
    for item in new:
        if item not in old:
            added.append(item)
    return [left, added]


@reference(
    "How many items of a have an equal one in b, when none of b counts twice.",
    "a 中有多少项能与 b 中相等的项一一配对。",
    args(_few, _few),
)
def count_common(a, b):
    total = 0
    for item in a:
        if item in b:
            b.remove(item)
            total += 1
    return total


@reference(
    "How many places have a larger item in a than in b, minus those where it is smaller.",
    "a 比 b 大的位置数减去 a 比 b 小的位置数。",
    args(smalls, smalls),
)
def larger_minus_smaller(a, b):
    total = 0
    for i in range(min(len(a), len(b))):
        if a[i] > b[i]:
            total += 1
        elif a[i] < b[i]:
            total -= 1
    return total


@reference(
    "The items that both rising lists have, each as often as in both.",
    "两个升序列表共有的项，次数取两者都有的。",
    args(lambda rng: sorted(smalls(rng)), lambda rng: sorted(smalls(rng))),
)
def common_sorted(a, b):
    result = []
    j = 0
    for item in a:
        while j < len(b) and b[j] < item:
            j += 1
        if j < len(b) and b[j] == item:
            result.append(item)
            j += 1
    return result


@reference(
    "The items that b has more often than a, each once.", "b 中次数多于 a 的各项，每个一次。", args(_letters, _letters)
)
def more_often(a, b):
    result = []
    for item in b:
        if item in result:
            continue
        if b.count(item) > a.count(item):
            result.append(item)
    return result
