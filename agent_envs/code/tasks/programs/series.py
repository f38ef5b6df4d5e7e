"""References about series of numbers: how they go on, and what can be said of them."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: B007, PERF401, RUF005, SIM110

from agent_envs.code.tasks.inputs import (
    args,
    between,
    count,
    either,
    large,
    listed,
    number,
    numbers,
    positive,
    small,
    smalls,
    some_numbers,
    together,
)
from agent_envs.code.tasks.reference import reference


@reference(
    "The sums of neighbours, with a 1 before and after them.",
    "相邻两项之和，前后各加一个 1。",
    args(listed(small, 1, 6)),
)
def next_row(row):
    result = [1]
    for i in range(1, len(row)):
        result.append(row[i - 1] + row[i])
    return result + [1]


def _rule(rng):
    a, step = rng.randint(1, 6), rng.randint(1, 4)
    return (a, a + step, a + 2 * step) if rng.random() < 0.5 else (a, a * (step + 1), a * (step + 1) ** 2)


@reference(
    "What comes after a, b and c: the same step added again when both steps are equal, else c times c // b.",
    "a、b、c 之后的数：两步相等则再加一步，否则为 c 乘 c // b。",
    together(_rule),
)
def next_number(a, b, c):
    if b - a == c - b:
        return c + c - b
    return c * (c // b)


@reference(
    "The row that begins with a and b, up to count numbers: each one more is the sum of the two before.",
    "从 a、b 开始的 count 个数（至少两个），之后每个是前两个之和。",
    args(small, small, between(0, 7)),
)
def row_of_sums(a, b, count):
    row = [a, b]
    while len(row) < count:
        row.append(row[-1] + row[-2])
    return row


@reference(
    "The numbers from n on, each the double of the one before, that are not above limit.",
    "从 n 开始每个是前一个的两倍，不超过 limit 的各数。",
    args(between(1, 9), between(5, 60)),
)
def doubles_to(n, limit):
    result = []
    while n <= limit:
        result.append(n)
        n = 2 * n
    return result


@reference(
    "How far a ball moves that falls from height and goes up by half of it (rounded down) until that is 1 or 0.",
    "球从 height 落下，每次弹起一半（取整）再落下，直到高度为 1 或 0，求总路程。",
    args(between(0, 60)),
)
def ball_way(height):
    way = height
    while height > 1:
        height = height // 2
        way += 2 * height
    return way


@reference("The sum of the digits of n, each times itself.", "n 的各位数字的平方和。", args(either(positive, large)))
def square_digits(n):
    total = 0
    for char in str(n):
        total += int(char) * int(char)
    return total


@reference("How many items are above the mean of all.", "大于平均数的项数。", args(either(numbers, smalls)))
def count_above_mean(items):
    total = 0
    for item in items:
        if item * len(items) > sum(items):
            total += 1
    return total


@reference(
    "The number of 0 to 5 that comes most often; of several the smallest.",
    "0 到 5 中出现最多的数，多个时取最小的。",
    args(listed(small, 1, 8)),
)
def most_often(items):
    counts = [0] * 6
    for item in items:
        counts[item] += 1
    return counts.index(max(counts))


@reference(
    "The sum of the items but for one largest and one smallest; 0 when there are fewer than three.",
    "去掉一个最大项和一个最小项后的和，不足三项时为 0。",
    args(listed(number, 0, 6)),
)
def sum_of_middle(items):
    if len(items) < 3:
        return 0
    return sum(items) - max(items) - min(items)


@reference(
    "What n is after so many days when half of it (rounded down) is added each day, never above 50.",
    "n 每天增加一半（取整），最多 50，求 days 天后的值。",
    args(between(1, 30), count),
)
def half_more(n, days):
    for day in range(days):
        n += n // 2
        if n > 50:
            n = 50
    return n


def _even_steps(rng):
    first, step = rng.randint(0, 9), rng.randint(1, 4)
    items = [first + step * i for i in range(rng.randint(3, 5))]
    if rng.random() < 0.5:
        items[rng.randrange(len(items))] += 1
    return items


@reference(
    "True when all steps from an item to the next are equal.", "相邻两项之差都相等时为 True。", args(_even_steps)
)
def equal_steps(items):
    for i in range(2, len(items)):
        if items[i] - items[i - 1] != items[1] - items[0]:
            return False
    return True


@reference(
    "The numbers 1, 3, 6, 10 … that are not above limit: 1, then 2 more, then 3 more and so on.",
    "不超过 limit 的 1、3、6、10……：从 1 开始，依次加 2、加 3……。",
    args(between(0, 60)),
)
def triangle_numbers(limit):
    result = []
    n = 1
    total = 1
    while total <= limit:
        result.append(total)
        n += 1
        total += n
    return result


@reference("The largest item minus the smallest.", "最大项减最小项。", args(some_numbers))
def high_minus_low(items):
    low = items[0]
    high = items[0]
    for item in items:
        if item < low:
            low = item
        if item > high:
            high = item
    return high - low


@reference("For each item how many items are smaller.", "对每一项，比它小的项数。", args(smalls))
def count_smaller(items):
    result = []
    for item in items:
        lower = 0
        for other in items:
            if other < item:
                lower += 1
        result.append(lower)
    return result


@reference(
    "Numbers 1 to n in a ring: one counts to step, takes that number out, goes on after it: the last one left.",
    "1 到 n 围成一圈，从 1 起每数到 step 就去掉一个，最后剩下的数。",
    args(between(1, 9), between(1, 4)),
)
def last_in_ring(n, step):
    ring = list(range(1, n + 1))
    place = 0
    while len(ring) > 1:
        place = (place + step - 1) % len(ring)
        ring.pop(place)
    return ring[0]


def _stack(rng):
    return [rng.choice((0, 0, 1, 2, 3, 4, 5)) for _ in range(rng.randint(1, 7))]


@reference(
    "The stack after all items: a 0 puts the sum of the top two in their place, if there are two; others go on top.",
    "依次处理各项后的栈：0 把顶上两个换成其和（不足两个则不变），其余放到顶上。",
    args(_stack),
)
def add_on_stack(items):
    stack = []
    for item in items:
        if item == 0 and len(stack) > 1:
            top = stack.pop()
            stack[-1] += top
        elif item > 0:
            stack.append(item)
    return stack
