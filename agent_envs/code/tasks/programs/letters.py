"""References about single letters of a string."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: SIM110

from agent_envs.code.tasks.inputs import (
    args,
    either,
    letter,
    letters,
    mixed,
    one_of,
    small,
    some_letters,
    spelled,
    text,
    together,
    word,
)
from agent_envs.code.tasks.reference import reference


@reference("The number of vowels (aeiou) in text.", "text 中元音字母（aeiou）的个数。", args(text))
def count_vowels(text):
    total = 0
    for char in text:
        if char in "aeiou":
            total += 1
    return total


@reference("The text without its vowels (aeiou).", "去掉 text 中的元音字母（aeiou）。", args(text))
def drop_vowels(text):
    result = ""
    for char in text:
        if char not in "aeiou":
            result += char
    return result


@reference(
    "The first char that was seen before, or an empty text.",
    "第一个之前出现过的字符，没有则为空。",
    args(either(letters, word)),
)
def first_repeat(text):
    for i in range(len(text)):
        if text[i] in text[:i]:
            return text[i]
    return ""


@reference(
    "The text with chars 0, 2, 4 … in upper case, the others in lower case.",
    "第 0、2、4……个字符大写，其余小写。",
    args(either(word, mixed)),
)
def wave_case(text):
    result = ""
    for i in range(len(text)):
        if i % 2 == 0:
            result += text[i].upper()
        else:
            result += text[i].lower()
    return result


@reference(
    "Each letter moved by step places in abc…z; after z comes a.",
    "每个字母在字母表中后移 step 位，z 之后是 a。",
    args(spelled("abcxyz", 1, 5), small),
)
def shift_letters(text, step):
    table = "abcdefghijklmnopqrstuvwxyz"
    result = ""
    for char in text:
        i = table.find(char) + step
        result += table[i % 26]
    return result


@reference("The sum of the digits in text.", "text 中所有数字之和。", args(spelled("ab1234", 0, 7)))
def sum_digits_in(text):
    total = 0
    for char in text:
        if char.isdigit():
            total += int(char)
    return total


@reference(
    "True when the chars of text are in rising order, equal ones allowed.",
    "字符按升序排列（可相等）时为 True。",
    args(either(one_of("abc", "aabc", "abb", "bc", ""), some_letters)),
)
def letters_in_order(text):
    for i in range(1, len(text)):
        if text[i] < text[i - 1]:
            return False
    return True


@reference("How many chars are equal to the next one.", "与下一个字符相同的字符个数。", args(either(letters, word)))
def count_doubles(text):
    total = 0
    for i in range(len(text) - 1):
        if text[i] == text[i + 1]:
            total += 1
    return total


@reference(
    "True when a and b have the same letters, each equally often.",
    "a 与 b 的字母及次数都相同时为 True。",
    together(
        lambda rng: (lambda a: (a, "".join(rng.sample(a, len(a))) if rng.random() < 0.5 else letters(rng)))(
            letters(rng)
        )
    ),
)
def same_letters(a, b):
    for char in a:
        if char not in b:
            return False
        b = b.replace(char, "", 1)
    return b == ""


@reference(
    "The last place of char in text, -1 when there is none.",
    "char 在 text 中最后的位置，没有则为 -1。",
    args(letters, letter),
)
def last_place(text, char):
    i = len(text) - 1
    while i >= 0:
        if text[i] == char:
            break
        i -= 1
    return i


@reference(
    "True when text is a whole number: digits with at most one - before them.",
    "text 是整数（数字，前面最多一个负号）时为 True。",
    args(either(spelled("123-", 0, 3), one_of("12", "-5", "-", "7", "1-2", "-30"))),
)
def is_whole_number(text):
    if text.startswith("-"):
        text = text[1:]
    if text == "":
        return False
    for char in text:
        if char not in "0123456789":
            return False
    return True


@reference("Each char once, in the order of its first place.", "每个字符只留一次，按首次出现的顺序。", args(mixed))
def each_char_once(text):
    result = ""
    for char in text:
        if char in result:
            continue
        result += char
    return result


@reference(
    "The char that comes most often; of several the first.",
    "出现次数最多的字符，多个时取最先出现的。",
    args(either(letters, word)),
)
def most_common_char(text):
    best = ""
    most = 0
    for char in text:
        if text.count(char) > most:
            best = char
            most = text.count(char)
    return best


@reference(
    "The text up to the first char that is a digit.",
    "text 中第一个数字之前的部分。",
    args(spelled("abc1", 0, 7)),
)
def before_digit(text):
    result = ""
    for char in text:
        if char.isdigit():
            break
        result += char
    return result


@reference(
    "How many letters of a and b at the same place differ.",
    "a 与 b 同一位置上不同的字母个数。",
    args(spelled("abc", 2, 5), spelled("abc", 2, 5)),
)
def count_changes(a, b):
    total = 0
    for i in range(min(len(a), len(b))):
        if a[i] != b[i]:
            total += 1
    return total
