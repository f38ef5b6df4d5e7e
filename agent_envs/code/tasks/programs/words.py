"""References about words and sentences."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import args, one_of, text
from agent_envs.code.tasks.reference import reference


@reference("The text with each word reversed, words in the same order.", "把每个词反过来，词的顺序不变。", args(text))
def reverse_each_word(text):
    result = []
    for word in text.split():
        result.append(word[::-1])
    return " ".join(result)


@reference("The text with its first and last word swapped.", "交换 text 的第一个词和最后一个词。", args(text))
def swap_end_words(text):
    words = text.split()
    if len(words) < 2:
        return text
    middle = words[1:-1]
    return " ".join(words[-1:] + middle + words[:1])


@reference("The first of the longest words of text.", "text 中最长的词，一样长时取第一个。", args(text))
def longest_word(text):
    best = ""
    for word in text.split():
        if len(word) > len(best):
            best = word
    return best


@reference("The words of text with at most size chars.", "text 中不超过 size 个字符的词。", args(text, one_of(3, 4, 5)))
def short_words(text, size):
    result = []
    for word in text.split():
        if len(word) <= size:
            result.append(word)
    return result


@reference("The first char of every word, in upper case.", "每个词的首字母，大写。", args(text))
def initials(text):
    result = ""
    for word in text.split():
        result += word[0].upper()
    return result


@reference(
    "The text with an upper case letter at the start of each word.",
    "每个词的首字母改为大写。",
    args(text),
)
def big_words(text):
    result = []
    for word in text.split():
        result.append(word[0].upper() + word[1:].lower())
    return " ".join(result)


@reference(
    "How many words of text begin with char.",
    "text 中以 char 开头的词数。",
    args(text, one_of("a", "b", "n", "s", "t", "m")),
)
def count_words_from(text, char):
    total = 0
    for word in text.split():
        if not word.startswith(char):
            continue
        total += 1
    return total


@reference(
    "The first word of text that has char, else an empty text.",
    "text 中第一个含 char 的词，没有则为空。",
    args(text, one_of("o", "e", "a", "n")),
)
def find_word(text, char):
    found = ""
    for word in text.split():
        if char in word:
            found = word
            break
    return found


@reference(
    "The words of text up to the first that is last, with it; all when it is missing.",
    "text 中到第一个 last（含）为止的词，没有 last 则为全部。",
    args(text, one_of("sun", "cat", "tree", "moon")),
)
def words_to(text, last):
    result = []
    for word in text.split():
        result.append(word)
        if word == last:
            break
    return result


@reference(
    "The words without those of fewer than size chars, joined by -.",
    "去掉不足 size 个字符的词，用 - 连接。",
    args(text, one_of(4, 5)),
)
def drop_short(text, size):
    result = []
    for word in text.split():
        if len(word) < size:
            continue
        result.append(word)
    return "-".join(result)
