"""References of the train split that are built on others: each stands in a file of its own and imports them."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import (
    args,
    between,
    either,
    grid,
    large,
    listed,
    nested,
    numbers,
    one_of,
    positive,
    small,
    some_numbers,
    spelled,
    text,
    words,
)
from agent_envs.code.tasks.programs.counts import best_key, count_first_letters
from agent_envs.code.tasks.programs.digits import reverse_digits
from agent_envs.code.tasks.programs.divisors import divisors, is_prime
from agent_envs.code.tasks.programs.letters import is_whole_number
from agent_envs.code.tasks.programs.lists import chunks, columns, rotate
from agent_envs.code.tasks.programs.machines import Gauge
from agent_envs.code.tasks.programs.nested import flatten, swap_pairs
from agent_envs.code.tasks.programs.numbers import count_coins
from agent_envs.code.tasks.programs.order import leaders, median
from agent_envs.code.tasks.programs.strings import run_lengths, split_text
from agent_envs.code.tasks.programs.sums import best_row, count_above
from agent_envs.code.tasks.programs.words import big_words, initials
from agent_envs.code.tasks.reference import reference


@reference(
    "The prime numbers that divide n, in rising order.",
    "整除 n 的质数，升序。",
    args(between(1, 60)),
    uses=(divisors, is_prime),
)
def prime_divisors(n):
    result = []
    for i in divisors(n):
        if is_prime(i):
            result.append(i)
    return result


@reference("The largest sum of a column.", "各列之和的最大值。", args(grid(small)), uses=(columns, best_row))
def best_column(rows):
    return best_row(columns(rows))


@reference(
    "The sum of n and n with its digits in reverse.",
    "n 与其各位反过来的数之和。",
    args(either(positive, large)),
    uses=(reverse_digits,),
)
def mirror_sum(n):
    return n + reverse_digits(n)


@reference(
    "How often the mirror of n is added until n is its own mirror; at most 5.",
    "n 加上其各位反过来的数，直到正反相同为止的次数，最多 5 次。",
    args(either(positive, large)),
    uses=(mirror_sum,),
)
def mirror_steps(n):
    for steps in range(5):
        total = mirror_sum(n)
        if total == 2 * n:
            return steps
        n = total
    return 5


@reference(
    "The first letters of all words but the last, in upper case, then the last word with a big letter.",
    "除最后一词外各词的大写首字母，再接首字母大写的最后一词。",
    args(text),
    uses=(initials, big_words),
)
def short_name(text):
    words = big_words(text).split()
    if len(words) < 2:
        return " ".join(words)
    return initials(text)[:-1] + " " + words[-1]


@reference(
    "The runs of text with their lengths when that is shorter, else text.",
    "若写成字符加长度更短则用它，否则为 text。",
    args(spelled("ab", 0, 8)),
    uses=(run_lengths,),
)
def pack(text):
    packed = run_lengths(text)
    if len(packed) < len(text):
        return packed
    return text


@reference(
    "How many items are larger than the middle one.",
    "大于中间项的项数。",
    args(either(some_numbers, listed(small, 1, 7))),
    uses=(median, count_above),
)
def above_middle(items):
    return count_above(items, median(items))


@reference(
    "The middle item of each group of size items.",
    "每 size 项一组，各组的中间项。",
    args(numbers, between(2, 3)),
    uses=(chunks, median),
)
def group_middles(items, size):
    result = []
    for group in chunks(items, size):
        result.append(median(group))
    return result


@reference(
    "The letter that most words begin with; of several the first.",
    "最多的词以之开头的字母，多个时取第一个。",
    args(words),
    uses=(count_first_letters, best_key),
)
def best_first_letter(words):
    return best_key(count_first_letters(words))


@reference(
    "The numbers of nested lists that are larger than all numbers after them.",
    "嵌套列表中比后面所有数都大的数。",
    args(nested),
    uses=(flatten, leaders),
)
def deep_leaders(items):
    return leaders(flatten(items))


@reference(
    "The fewest coins for all amounts together; amounts below 0 need none.",
    "各金额所需硬币的最少总数，负数不需要。",
    args(listed(between(-5, 30), 0, 4)),
    uses=(count_coins,),
)
def all_coins(amounts):
    total = 0
    for amount in amounts:
        if amount < 0:
            continue
        total += count_coins(amount)
    return total


@reference(
    "The sum of the whole numbers between the marks char.",
    "按 char 切开后，其中整数之和。",
    args(spelled("12a,,", 0, 7), one_of(",")),
    uses=(split_text, is_whole_number),
)
def sum_of_parts(text, char):
    total = 0
    for part in split_text(text, char):
        if is_whole_number(part):
            total += int(part)
    return total


@reference(
    "The value of a gauge from 0 to limit after all steps; negative ones go down.",
    "0 到 limit 的计量器走完各步后的值，负数为减少。",
    args(between(3, 9), listed(between(-5, 5), 1, 5)),
    uses=(Gauge,),
)
def fill_gauge(limit, steps):
    gauge = Gauge(limit)
    for step in steps:
        if step > 0:
            gauge.up(step)
        else:
            gauge.down(-step)
    return gauge.value


@reference(
    "The items moved by step places, then neighbours swapped in pairs.",
    "先把前 step 项移到末尾，再两两交换相邻项。",
    args(numbers, small),
    uses=(rotate, swap_pairs),
)
def mix(items, step):
    return swap_pairs(rotate(items, step))
