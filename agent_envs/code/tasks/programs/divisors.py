"""References about numbers that divide others."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401, SIM110

from agent_envs.code.tasks.inputs import args, between, either, one_of
from agent_envs.code.tasks.reference import reference


@reference(
    "The largest number that divides both a and b.",
    "能同时整除 a 和 b 的最大数。",
    args(between(1, 40), between(1, 40)),
)
def common_divisor(a, b):
    while b > 0:
        rest = a % b
        a = b
        b = rest
    return a


@reference("True when n is a prime number.", "n 是质数时为 True。", args(between(0, 50)))
def is_prime(n):
    if n < 2:
        return False
    for i in range(2, n):
        if n % i == 0:
            return False
    return True


@reference("All numbers that divide n, in rising order.", "整除 n 的所有数，升序。", args(between(1, 40)))
def divisors(n):
    result = []
    for i in range(1, n + 1):
        if n % i == 0:
            result.append(i)
    return result


@reference("The prime numbers whose product is n, in rising order.", "乘积为 n 的质数，升序。", args(between(1, 60)))
def prime_parts(n):
    result = []
    i = 2
    while n > 1:
        if n % i == 0:
            result.append(i)
            n = n // i
        else:
            i += 1
    return result


@reference(
    "The smallest number that both a and b divide.", "a 和 b 都能整除的最小数。", args(between(1, 12), between(1, 12))
)
def common_multiple(a, b):
    result = max(a, b)
    while result % a != 0 or result % b != 0:
        result += 1
    return result


@reference(
    "True for a leap year: 4 divides it, and 100 does not, or 400 does.",
    "year 是闰年时为 True。",
    args(
        either(one_of(1900, 2000, 2100, 2400, 1800, 1600), between(1990, 2030), lambda rng: 4 * rng.randint(480, 510))
    ),
)
def is_leap_year(year):
    if year % 400 == 0:
        return True
    return year % 4 == 0 and year % 100 != 0


@reference(
    "True when n is 1, 2, 4, 8 …",
    "n 是 1、2、4、8……时为 True。",
    args(either(between(0, 40), lambda rng: 2 ** rng.randint(0, 12))),
)
def is_power_of_two(n):
    if n < 1:
        return False
    while n % 2 == 0:
        n = n // 2
    return n == 1


@reference(
    "How many numbers from a to b (both included) step divides.",
    "a 到 b（含）中能被 step 整除的个数。",
    args(between(0, 12), between(5, 30), between(2, 5)),
)
def count_multiples(a, b, step):
    total = 0
    for i in range(a, b + 1):
        if i % step == 0:
            total += 1
    return total


@reference(
    "The smallest number from n on that step divides.",
    "不小于 n 且能被 step 整除的最小数。",
    args(between(0, 40), between(2, 9)),
)
def next_multiple(n, step):
    rest = n % step
    if rest == 0:
        return n
    return n + step - rest


@reference("The smallest prime number larger than n.", "大于 n 的最小质数。", args(between(0, 60)))
def next_prime(n):
    while True:
        n += 1
        for i in range(2, n):
            if n % i == 0:
                break
        else:
            if n > 1:
                return n


@reference(
    "The sum of the numbers below limit that 3 or 5 divides.",
    "小于 limit 且能被 3 或 5 整除的数之和。",
    args(between(0, 40)),
)
def sum_three_five(limit):
    total = 0
    for i in range(limit):
        if i % 3 == 0 or i % 5 == 0:
            total += i
    return total


@reference(
    "True when the numbers below n that divide n have a larger sum than n.",
    "小于 n 的因数之和大于 n 时为 True。",
    args(either(between(2, 60), one_of(12, 18, 20, 24, 30, 36, 40, 42, 48, 54, 56, 60))),
)
def is_rich(n):
    total = 0
    for i in range(1, n):
        if n % i == 0:
            total += i
    return total > n


@reference(
    "How often n can be halved before it is odd; 0 for 0.",
    "n 变成奇数前能被 2 除几次，0 为 0。",
    args(either(between(0, 40), one_of(8, 16, 24, 32, 48))),
)
def count_halves(n):
    total = 0
    while n > 0:
        if n % 2 == 1:
            break
        n = n // 2
        total += 1
    return total
