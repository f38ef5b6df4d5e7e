"""References that call themselves."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: RUF005

from agent_envs.code.tasks.inputs import args, between, either, large, letters, one_of, positive, spelled, word
from agent_envs.code.tasks.reference import reference


@reference(
    "The product of n numbers that are all a; 1 when n is 0.",
    "a 的 n 次方，n 为 0 时是 1。",
    args(between(1, 5), between(0, 6)),
)
def power(a, n):
    if n == 0:
        return 1
    half = power(a, n // 2)
    if n % 2 == 1:
        return half * half * a
    return half * half


@reference("The text from its end to its start.", "把 text 反过来。", args(either(word, letters)))
def backwards(text):
    if len(text) < 2:
        return text
    return text[-1] + backwards(text[:-1])


@reference(
    "The numbers from n down to low, then up to n again.",
    "从 n 数到 low 再数回 n。",
    args(between(0, 6), between(0, 4)),
)
def down_and_up(n, low):
    if n < low:
        return []
    if n == low:
        return [n]
    return [n] + down_and_up(n - 1, low) + [n]


@reference(
    "How many ways there are to take size of n items.",
    "从 n 项中取 size 项的取法数。",
    args(between(0, 7), between(0, 5)),
)
def choose(n, size):
    if size == 0:
        return 1
    if n == 0:
        return 0
    return choose(n - 1, size - 1) + choose(n - 1, size)


@reference(
    "How many ways there are to go down and right so many steps, in any order.",
    "向下走 down 步、向右走 right 步的走法数。",
    args(between(0, 5), between(0, 5)),
)
def count_ways(down, right):
    if down == 0 or right == 0:
        return 1
    total = count_ways(down - 1, right)
    return total + count_ways(down, right - 1)


@reference(
    "How many ways there are to climb n steps by 1 or step at a time.",
    "每次走 1 级或 step 级，上 n 级台阶的走法数。",
    args(between(0, 12), between(2, 4)),
)
def climb(n, step):
    if n < 0:
        return 0
    if n == 0:
        return 1
    return climb(n - 1, step) + climb(n - step, step)


@reference(
    "The sum of the even digits of n.", "n 的各位数字中偶数之和。", args(either(positive, large, between(1000, 9999)))
)
def even_digits(n):
    if n == 0:
        return 0
    digit = n % 10
    if digit % 2 == 1:
        digit = 0
    return digit + even_digits(n // 10)


@reference(
    "The fewest letters to put in, take out or change to make b of a.",
    "把 a 变成 b 最少要插入、删除或替换几个字母。",
    args(spelled("abc", 0, 3), spelled("abc", 0, 3)),
)
def edits(a, b):
    if a == "" or b == "":
        return len(a) + len(b)
    if a[0] == b[0]:
        return edits(a[1:], b[1:])
    rest = min(edits(a[1:], b), edits(a, b[1:]))
    return 1 + min(rest, edits(a[1:], b[1:]))


@reference(
    "The length of the longest text that is in both when chars are left out.",
    "a 与 b 的最长公共子序列的长度。",
    args(spelled("abc", 0, 4), spelled("abc", 0, 4)),
)
def shared_size(a, b):
    if a == "" or b == "":
        return 0
    if a[-1] == b[-1]:
        return shared_size(a[:-1], b[:-1]) + 1
    left = shared_size(a[:-1], b)
    return max(left, shared_size(a, b[:-1]))


@reference(
    "The text with every char of marks taken from both ends.",
    "从两端去掉属于 marks 的字符。",
    args(spelled("ab-.", 0, 6), one_of("-", ".", "-.")),
)
def trim(text, marks):
    if text == "":
        return ""
    if text[0] in marks:
        return trim(text[1:], marks)
    if text[-1] in marks:
        return trim(text[:-1], marks)
    return text


@reference(
    "The moves of size plates from post a to post b over post c: from and to.",
    "把 size 个盘子从柱 a 经柱 c 移到柱 b 的步骤。",
    args(between(0, 3), one_of("a", "b"), one_of("c", "d"), one_of("e", "f")),
)
def tower(size, a, b, c):
    if size == 0:
        return []
    moves = tower(size - 1, a, c, b)
    moves.append(a + b)
    return moves + tower(size - 1, c, b, a)


@reference(
    "True when the text has only ( and ), each ( with its ) at the other end.",
    "text 由外到内成对括号构成时为 True。",
    args(
        either(
            lambda rng: "(" * rng.randint(0, 8) + ")" * rng.randint(0, 3),
            one_of(*["(" * i + ")" * i for i in range(12)]),
            spelled("()", 0, 6),
        )
    ),
)
def is_shell(text):
    if text == "":
        return True
    if text[0] != "(" or text[-1] != ")":
        return False
    return is_shell(text[1:-1])


@reference("The number n in this base, as text.", "n 的 base 进制写法（字符串）。", args(between(0, 60), between(2, 9)))
def in_base(n, base):
    if n < base:
        return str(n)
    return in_base(n // base, base) + str(n % base)
