"""References about strings and their parts."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: RUF005

from agent_envs.code.tasks.inputs import (
    args,
    between,
    count,
    either,
    letter,
    letters,
    mixed,
    one_of,
    small,
    some_letters,
    spelled,
    text,
    word,
)
from agent_envs.code.tasks.reference import reference


@reference(
    "True when text reads the same from both ends.",
    "text 从两端读都一样时为 True。",
    args(either(one_of("noon", "level", "aba", "abba", "a", ""), letters, word)),
)
def same_both_ways(text):
    i = 0
    j = len(text) - 1
    while i < j:
        if text[i] != text[j]:
            return False
        i += 1
        j -= 1
    return True


@reference(
    "Each run of equal chars as the char and its length.",
    "把每段相同的字符写成字符加长度。",
    args(either(letters, word)),
)
def run_lengths(text):
    result = ""
    size = 0
    for i in range(len(text)):
        size += 1
        if i + 1 == len(text) or text[i + 1] != text[i]:
            result += text[i] + str(size)
            size = 0
    return result


def _runs(rng):
    return "".join(letter(rng) + str(count(rng)) for _ in range(rng.randint(0, 3)))


@reference("Each char as often as the digit after it says.", "每个字符按其后数字重复。", args(_runs))
def expand_runs(text):
    result = ""
    for i in range(0, len(text), 2):
        char = text[i]
        size = int(text[i + 1])
        result += char * size
    return result


@reference(
    "The text with only one char of each run of equal chars.",
    "每段相同的字符只留一个。",
    args(either(letters, word)),
)
def squeeze(text):
    result = text[:1]
    for char in text[1:]:
        if char != result[-1]:
            result += char
    return result


_close = spelled("ab", 1, 5)


@reference("The longest beginning that a and b share.", "a 与 b 共同的最长开头。", args(_close, _close))
def common_start(a, b):
    size = 0
    while size < len(a) and size < len(b):
        if a[size] != b[size]:
            break
        size += 1
    return a[:size]


@reference(
    "The middle char, or the two middle chars when the length is even.",
    "中间的字符；长度为偶数时取中间两个。",
    args(either(word, some_letters)),
)
def middle_chars(text):
    i = len(text) // 2
    if len(text) % 2 == 1:
        return text[i]
    return text[i - 1 : i + 1]


def _bracketed(rng):
    part = letters(rng)
    return letters(rng) + rng.choice([f"[{part}]", f"[{part}]", f"[{part}", f"{part}]"]) + letters(rng)


@reference(
    "What stands between the first [ and the next ], else an empty text.",
    "第一个 [ 与其后 ] 之间的内容，没有则为空。",
    args(_bracketed),
)
def inside_brackets(text):
    start = text.find("[")
    end = text.find("]", start + 1)
    if start < 0 or end < 0:
        return ""
    return text[start + 1 : end]


_brackets = either(
    spelled("()", 0, 6), one_of("()", "(())", "()()", "(()())", "((()))", "()(())", "(())()", "()()()", "(()")
)


@reference("True when every ( has its ).", "括号全部配对时为 True。", args(_brackets))
def balanced(text):
    depth = 0
    for char in text:
        if char == "(":
            depth += 1
        else:
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


@reference("How many ( are open at most at a time.", "同时打开的 ( 最多有几个。", args(_brackets))
def most_open(text):
    depth = 0
    best = 0
    for char in text:
        if char == "(":
            depth += 1
        elif depth > 0:
            depth -= 1
        best = max(best, depth)
    return best


@reference(
    "The text with all but its last size chars hidden by a star.",
    "除最后 size 个字符外都换成星号。",
    args(either(word, letters), small),
)
def hide_start(text, size):
    hidden = len(text) - size
    if hidden <= 0:
        return text
    return "*" * hidden + text[hidden:]


@reference(
    "Chars of a and b in turn, from a first; then the rest of the longer one.",
    "轮流取 a 与 b 的字符（a 先），再接较长者的余下部分。",
    args(either(letters, word), spelled("12345", 0, 5)),
)
def weave(a, b):
    size = min(len(a), len(b))
    result = ""
    for i in range(size):
        result += a[i] + b[i]
    return result + a[size:] + b[size:]


@reference(
    "How often part stands in text, overlaps counted.",
    "part 在 text 中出现的次数，允许重叠。",
    args(spelled("ab", 2, 8), one_of("a", "ab", "aa", "ba", "aba")),
)
def count_part(text, part):
    total = 0
    for i in range(len(text)):
        if text[i:].startswith(part):
            total += 1
    return total


@reference(
    "The parts of text between the marks char, a list.",
    "按字符 char 把 text 切成列表。",
    args(spelled("ab--", 0, 7), one_of("-", "a")),
)
def split_text(text, char):
    result = []
    part = ""
    for other in text:
        if other == char:
            result.append(part)
            part = ""
        else:
            part += other
    return result + [part]


@reference(
    "The text cut into parts of size chars; the last may be shorter.",
    "把 text 按 size 个字符切成列表，最后一段可较短。",
    args(either(text, mixed), count),
)
def cut_text(text, size):
    result = []
    start = 0
    while start < len(text):
        result.append(text[start : start + size])
        start += size
    return result


@reference(
    "The text with - before it until it has size chars.",
    "在 text 前补 - 直到有 size 个字符。",
    args(either(letters, word), between(0, 8)),
)
def fill_left(text, size):
    while len(text) < size:
        text = "-" + text
    return text
