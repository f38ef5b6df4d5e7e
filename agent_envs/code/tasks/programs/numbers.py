"""References about whole numbers."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: B007, SIM108

from agent_envs.code.tasks.inputs import args, between, digit, either, one_of
from agent_envs.code.tasks.reference import reference


@reference(
    "The product of all numbers from low to high; 1 when there are none.",
    "low 到 high 所有数的乘积，没有数时为 1。",
    args(between(1, 5), between(0, 6)),
)
def product_between(low, high):
    result = 1
    for i in range(low, high + 1):
        result *= i
    return result


@reference(
    "Steps from n to 1: half of an even number, else 3 n + 1.",
    "从 n 到 1 的步数：偶数取一半，奇数取 3n+1。",
    args(between(1, 40)),
)
def steps_to_one(n):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@reference(
    "Number n of 0, 1, 1, 2, 3, 5 …, where 0 is number 0.",
    "数列 0、1、1、2、3、5……的第 n 个（从 0 数）。",
    args(between(0, 24)),
)
def sum_row(n):
    a = 0
    b = 1
    for i in range(n):
        c = a + b
        a = b
        b = c
    return a


@reference(
    "The number in low to high that is nearest to n.",
    "low 到 high 之间最接近 n 的数。",
    args(between(-9, 20), between(-4, 4), between(5, 12)),
)
def clamp(n, low, high):
    if n < low:
        return low
    if n > high:
        return high
    return n


@reference(
    "True when n is a number times itself.",
    "n 是某个数的平方时为 True。",
    args(either(between(0, 40), lambda rng: rng.randint(0, 15) ** 2)),
)
def is_square(n):
    i = 0
    while i * i < n:
        i += 1
    return i * i == n


@reference(
    "high from 90 points on, middle from 60 on, else low.",
    "90 分起为 high，60 分起为 middle，否则为 low。",
    args(either(between(40, 100), one_of(60, 90, 59, 89))),
)
def rank(points):
    if points >= 90:
        return "high"
    if points >= 60:
        return "middle"
    return "low"


@reference(
    "True when sides a, b and c can make a triangle with some area.",
    "边长 a、b、c 能构成三角形时为 True。",
    args(between(1, 7), between(1, 7), between(1, 7)),
)
def is_triangle(a, b, c):
    if a + b <= c:
        return False
    return a + c > b and b + c > a


@reference(
    "The fewest coins of 10, 5, 2 and 1 that make amount.",
    "凑成 amount 所需 10、5、2、1 硬币的最少个数。",
    args(between(0, 60)),
)
def count_coins(amount):
    total = 0
    for coin in [10, 5, 2, 1]:
        total += amount // coin
        amount = amount % coin
    return total


@reference(
    "Years until amount is at least goal, with a tenth more (rounded down) every year.",
    "每年增加十分之一（取整），amount 达到 goal 的年数。",
    args(between(10, 40), between(10, 90)),
)
def years_to_goal(amount, goal):
    years = 0
    while amount < goal:
        amount += amount // 10
        years += 1
    return years


@reference("The middle one of three numbers.", "三个数中居中的那个。", args(digit, digit, digit))
def middle_of_three(a, b, c):
    low = min(a, b)
    high = max(a, b)
    if c < low:
        return low
    return min(high, c)


@reference(
    "The steps between two places on a ring of size places.",
    "在 size 个位置的环上两处之间的最少步数。",
    args(between(0, 7), between(0, 7), between(8, 12)),
)
def ring_distance(a, b, size):
    steps = abs(a - b)
    return min(steps, size - steps)


@reference(
    "The price of count items when every third one is free.",
    "买 count 件，每三件中有一件免费时的总价。",
    args(between(1, 9), between(0, 12)),
)
def third_free(price, count):
    free = count // 3
    return price * (count - free)


@reference(
    "The sum of the first n odd numbers that 3 does not divide.",
    "前 n 个不能被 3 整除的奇数之和。",
    args(between(0, 20)),
)
def sum_odd(n):
    total = 0
    i = -1
    while n > 0:
        i += 2
        if i % 3 == 0:
            continue
        total += i
        n -= 1
    return total
