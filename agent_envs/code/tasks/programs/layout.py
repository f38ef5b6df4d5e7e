"""References about how text is laid out, and small formats."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: F402, PERF401

from agent_envs.code.tasks.inputs import args, between, digit, letter, listed, one_of, spelled, table, text, word, words
from agent_envs.code.tasks.reference import reference


@reference(
    "The text with points on both sides until it has size chars; the right side has as many as the left or one more.",
    "在 text 两边补点直到有 size 个字符，必要时右边多一个。",
    args(word, between(3, 9)),
)
def fill_both(text, size):
    left = (size - len(text)) // 2
    right = size - len(text) - left
    return "." * left + text + "." * right


@reference(
    "Three lines: - for each char of text with + at both ends, the text between * and *, and the first line again.",
    "三行：两端为 + 的横线、两个星号间的 text、再一行横线。",
    args(text),
)
def box_text(text):
    line = "+" + "-" * len(text) + "+"
    return [line, "*" + text + "*", line]


@reference(
    "The first 1, 2, 3 … chars of text, a list.", "text 的前 1、2、3……个字符组成的列表。", args(spelled("abc12", 0, 5))
)
def each_start(text):
    result = []
    for i in range(len(text)):
        result.append(text[: i + 1])
    return result


@reference(
    "The n rows of a tower: 1, 3, 5 … times char, with points before them so that their middles stand in one line.",
    "n 行的塔：char 依次 1、3、5……个，前面补点使各行居中。",
    args(between(0, 5), one_of("a", "b", "x", "o")),
)
def tower_rows(n, char):
    rows = []
    for i in range(n):
        rows.append("." * (n - 1 - i) + char * (2 * i + 1))
    return rows


@reference(
    "The text when it has at most size chars, else size chars: its start and two points.",
    "text 不超过 size 个字符时不变，否则取开头加两个点，共 size 个字符。",
    args(text, between(2, 9)),
)
def short_text(text, size):
    if len(text) <= size:
        return text
    return text[: size - 2] + ".."


@reference(
    "A |, then for each word size chars, its start or with points after it, and another |.",
    "各词用 | 隔开，每个词截断或补点到 size 个字符。",
    args(words, between(2, 5)),
)
def table_row(words, size):
    row = "|"
    for word in words:
        row += word[:size] + "." * (size - len(word)) + "|"
    return row


def _settings(rng):
    return ",".join(f"{rng.choice('abc')}={rng.randint(0, 20)}" for _ in range(rng.randint(1, 4)))


@reference("The table that a text such as a=1,b=2 says.", "把 a=1,b=2 这样的文本变成字典。", args(_settings))
def read_table(text):
    result = {}
    for part in text.split(","):
        key, value = part.split("=")
        result[key] = int(value)
    return result


@reference(
    "The words as one text such as a, b and c.",
    "把各词写成 a, b and c 这样的文本。",
    args(words),
)
def name_list(words):
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1]


@reference(
    "What stands after the last place of char; all of text when there is none.",
    "最后一个 char 之后的内容，没有 char 则为全部。",
    args(spelled("ab--.", 0, 8), one_of("-", ".")),
)
def after_last(text, char):
    result = ""
    for other in text:
        result += other
        if other == char:
            result = ""
    return result


def _task(rng):
    return f"{rng.randint(0, 20)} {rng.choice('+-')} {rng.randint(1, 9)}"


@reference("What a text such as 7 + 2 or 7 - 2 comes to.", "7 + 2 或 7 - 2 这样的文本的结果。", args(_task))
def add_or_take(text):
    a, sign, b = text.split()
    if sign == "+":
        return int(a) + int(b)
    return int(a) - int(b)


@reference(
    "In [ and ] size chars: n times a star, but at most size, then points.",
    "方括号内 size 个字符：n 个星号（最多 size 个），其余为点。",
    args(between(0, 9), between(2, 8)),
)
def star_line(n, size):
    n = min(n, size)
    return "[" + "*" * n + "." * (size - n) + "]"


@reference(
    "Lines of words joined by -: a word stands in the line before when that then has at most size chars.",
    "把词用 - 连成行：加入后不超过 size 个字符就接在上一行。",
    args(text, between(6, 12)),
)
def join_lines(text, size):
    lines = []
    for word in text.split():
        if lines and len(lines[-1] + word) < size:
            lines[-1] += "-" + word
        else:
            lines.append(word)
    return lines


@reference(
    "The words with points after them up to the length of the longest.", "各词后面补点到最长词的长度。", args(words)
)
def fill_words(words):
    size = 0
    for word in words:
        size = max(size, len(word))
    result = []
    for word in words:
        result.append(word + "." * (size - len(word)))
    return result


@reference(
    "The lines that are not empty, each with its number from 1 and a space before it.",
    "去掉空行，其余各行前加从 1 起的编号和空格。",
    args(listed(one_of("cat", "dog", "sun", "", "tree"), 0, 5)),
)
def number_lines(lines):
    result = []
    number = 0
    for line in lines:
        if line == "":
            continue
        number += 1
        result.append(str(number) + " " + line)
    return result


@reference(
    "The keys in rising order with their values, such as a=1;b=2.",
    "按键升序写成 a=1;b=2 这样的文本。",
    args(table(letter, digit, 0, 4)),
)
def write_table(table):
    result = ""
    for key in sorted(table):
        if result != "":
            result += ";"
        result += key + "=" + str(table[key])
    return result


@reference(
    "All whole numbers that stand in text, a list.", "text 中所有整数组成的列表。", args(spelled("123ab-", 0, 9))
)
def read_numbers(text):
    result = []
    part = ""
    for char in text + " ":
        if char.isdigit():
            part += char
        elif part != "":
            result.append(int(part))
            part = ""
    return result


@reference(
    "The text when each < takes away itself and the char that is left before it.",
    "text 中每个 < 删除自身和前面剩下的最后一个字符后的结果。",
    args(spelled("abc<", 0, 8)),
)
def take_back(text):
    result = ""
    for char in text:
        if char == "<":
            result = result[:-1]
        else:
            result += char
    return result
