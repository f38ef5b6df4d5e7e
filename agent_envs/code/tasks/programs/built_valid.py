"""References of the valid split that are built on others: each stands in a file of its own and imports them."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import (
    args,
    between,
    listed,
    ordered,
    smalls,
    spelled,
    text,
    together,
    words,
)
from agent_envs.code.tasks.programs.classes import Window
from agent_envs.code.tasks.programs.digits import digit_sum, to_binary
from agent_envs.code.tasks.programs.divisors import common_multiple, is_leap_year
from agent_envs.code.tasks.programs.letters import count_vowels, drop_vowels
from agent_envs.code.tasks.programs.lists import every, group_equal
from agent_envs.code.tasks.programs.nested import largest, sort_items
from agent_envs.code.tasks.programs.order import merge
from agent_envs.code.tasks.programs.strings import common_start, fill_left
from agent_envs.code.tasks.programs.words import longest_word
from agent_envs.code.tasks.reference import reference


@reference(
    "The first of the words that are longest without vowels, without them.",
    "去掉元音后最长的词，一样长时取第一个。",
    args(text),
    uses=(drop_vowels, longest_word),
)
def longest_bare(text):
    return longest_word(drop_vowels(text))


@reference(
    "The number n in base 2 with at least size chars, - before it.",
    "n 的二进制写法，不足 size 个字符时前面补 -。",
    args(between(0, 20), between(1, 6)),
    uses=(to_binary, fill_left),
)
def wide_binary(n, size):
    return fill_left(to_binary(n), size)


@reference(
    "Two rising lists as one, of which each item at 0, step, 2 step and so on.",
    "把两个升序列表合成一个，取其中位置 0、step、2 step……的项。",
    args(ordered(smalls), ordered(smalls), between(1, 3)),
    uses=(merge, every),
)
def merge_every(a, b, step):
    return every(merge(a, b), step)


@reference(
    "The longest beginning that all words share.",
    "所有词共同的最长开头。",
    args(listed(spelled("ab", 1, 5), 1, 3)),
    uses=(common_start,),
)
def start_of_all(words):
    best = words[0]
    for word in words[1:]:
        best = common_start(best, word)
    return best


@reference(
    "The largest sum of digits of a number in items.",
    "items 中各数的数字之和的最大值。",
    args(listed(between(1, 99), 1, 4)),
    uses=(digit_sum, largest),
)
def best_digit_sum(items):
    result = []
    for item in items:
        result.append(digit_sum(item))
    return largest(result)


def _span(rng):
    first = rng.choice([1896, 1899, 1997, 2000, 2095, 2100])
    return first, first + rng.randint(0, 12)


@reference(
    "The leap years from first to last, both included.",
    "first 到 last（含）之间的闰年。",
    together(_span),
    uses=(is_leap_year,),
)
def leap_years(first, last):
    result = []
    for year in range(first, last + 1):
        if is_leap_year(year):
            result.append(year)
    return result


@reference(
    "How often the most common item comes; 0 when there is none.",
    "最常见的项出现的次数，没有则为 0。",
    args(smalls),
    uses=(sort_items, group_equal),
)
def most_equal(items):
    best = 0
    for group in group_equal(sort_items(items)):
        best = max(best, len(group))
    return best


@reference(
    "The largest sum of the last size numbers, seen after each number.",
    "每来一个数后，最后 size 个数之和的最大值。",
    args(listed(between(-5, 9), 1, 5), between(1, 3)),
    uses=(Window,),
)
def best_total(numbers, size):
    window = Window(size)
    best = 0
    for number in numbers:
        best = max(best, window.add(number).total())
    return best


@reference(
    "The smallest number that all items divide.",
    "所有项都能整除的最小数。",
    args(listed(between(1, 6), 0, 4)),
    uses=(common_multiple,),
)
def multiple_of_all(items):
    result = 1
    for item in items:
        result = common_multiple(result, item)
    return result


@reference(
    "The first day on which all come that come every so many days; -1 after limit.",
    "各人每隔若干天来一次，全都来的第一天；超过 limit 则为 -1。",
    args(listed(between(1, 6), 1, 3), between(3, 30)),
    uses=(multiple_of_all,),
)
def meeting_day(items, limit):
    day = multiple_of_all(items)
    if day > limit:
        return -1
    return day


@reference(
    "The words with at most limit vowels.",
    "元音字母不超过 limit 个的词。",
    args(words, between(0, 2)),
    uses=(count_vowels,),
)
def few_vowels(words, limit):
    result = []
    for word in words:
        if count_vowels(word) > limit:
            continue
        result.append(word)
    return result
