"""References about the digits of numbers."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors

from agent_envs.code.tasks.inputs import args, between, either, large, positive, spelled
from agent_envs.code.tasks.reference import reference


@reference("The digits of n in reverse, as a number.", "把 n 的各位数字反过来组成的数。", args(either(positive, large)))
def reverse_digits(n):
    result = 0
    while n > 0:
        result = result * 10 + n % 10
        n = n // 10
    return result


@reference("The sum of the digits of n.", "n 的各位数字之和。", args(either(positive, large)))
def digit_sum(n):
    total = 0
    while n > 0:
        total += n % 10
        n //= 10
    return total


@reference("The number n in base 2, as text.", "n 的二进制写法（字符串）。", args(between(0, 40)))
def to_binary(n):
    if n == 0:
        return "0"
    result = ""
    while n > 0:
        result = str(n % 2) + result
        n = n // 2
    return result


@reference("The number that text says in base 2.", "二进制字符串 text 表示的数。", args(spelled("01", 0, 6)))
def from_binary(text):
    result = 0
    for char in text:
        result = 2 * result
        if char == "1":
            result += 1
    return result


@reference(
    "The sum of digits, again and again until there is one digit.",
    "反复求各位数字之和，直到只剩一位。",
    args(either(positive, large)),
)
def digit_root(n):
    while n > 9:
        total = 0
        for char in str(n):
            total += int(char)
        n = total
    return n


@reference("The largest digit of n.", "n 的各位数字中最大的。", args(either(positive, large)))
def largest_digit(n):
    best = 0
    while n > 0:
        digit = n % 10
        if digit > best:
            best = digit
        n = n // 10
    return best


@reference(
    "three when 3 divides n, five when 5 does, both words for both, else n as text.",
    "能被 3 整除写 three，被 5 整除写 five，都能则连写，否则写 n。",
    args(between(1, 45)),
)
def three_five(n):
    result = ""
    if n % 3 == 0:
        result += "three"
    if n % 5 == 0:
        result += "five"
    return result or str(n)


@reference(
    "The number n in Roman letters (X, V, I; at most 39).",
    "n 的罗马数字写法（X、V、I，最大 39）。",
    args(between(1, 39)),
)
def roman(n):
    result = "X" * (n // 10)
    n = n % 10
    if n == 9:
        return result + "IX"
    if n == 4:
        return result + "IV"
    if n >= 5:
        result += "V"
        n -= 5
    return result + "I" * n


@reference(
    "Seconds as minutes and seconds, for 75: 1:15.",
    "把秒写成 分:秒，例如 75 写成 1:15。",
    args(either(between(0, 300), between(0, 70))),
)
def clock_text(seconds):
    minutes = seconds // 60
    seconds = seconds % 60
    if seconds < 10:
        return str(minutes) + ":0" + str(seconds)
    return str(minutes) + ":" + str(seconds)


@reference(
    "How many digits a and b share at the same place, from the end.",
    "a 与 b 从末尾数起同位且相同的数字个数。",
    args(either(positive, large), either(positive, large)),
)
def same_digits(a, b):
    total = 0
    while a > 0 and b > 0:
        if a % 10 == b % 10:
            total += 1
        a = a // 10
        b = b // 10
    return total


@reference("The product of the digits of n that are not 0.", "n 的各位非零数字之积。", args(either(positive, large)))
def digit_product(n):
    result = 1
    for char in str(n):
        if char == "0":
            continue
        result *= int(char)
    return result
