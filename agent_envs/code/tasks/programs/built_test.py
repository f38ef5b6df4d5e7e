"""References of the test split that are built on others: each stands in a file of its own and imports them."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import (
    args,
    between,
    digit,
    either,
    large,
    letter,
    listed,
    one_of,
    pair,
    positive,
    spelled,
)
from agent_envs.code.tasks.programs.classes import Wallet
from agent_envs.code.tasks.programs.counts import best_points, count_each, keys_by_value
from agent_envs.code.tasks.programs.digits import digit_root, roman
from agent_envs.code.tasks.programs.letters import same_letters, shift_letters
from agent_envs.code.tasks.programs.lists import each_once, running_sums, take_until
from agent_envs.code.tasks.programs.machines import Robot
from agent_envs.code.tasks.programs.numbers import steps_to_one
from agent_envs.code.tasks.programs.order import zeros_last
from agent_envs.code.tasks.programs.places import place_of_max
from agent_envs.code.tasks.programs.recursion import in_base
from agent_envs.code.tasks.programs.strings import squeeze
from agent_envs.code.tasks.reference import reference


@reference(
    "The text with one char of each run, each letter moved by step places.",
    "每段相同字符只留一个，再把每个字母后移 step 位。",
    args(spelled("abz", 1, 6), between(0, 3)),
    uses=(squeeze, shift_letters),
)
def short_code(text, step):
    return shift_letters(squeeze(text), step)


@reference(
    "The names, those with the best points first, equal ones in rising order.",
    "按最高分从高到低排列的名字，同分的升序。",
    args(listed(pair(letter, digit), 0, 6)),
    uses=(best_points, keys_by_value),
)
def best_names(pairs):
    return keys_by_value(best_points(pairs))


@reference(
    "The number from 1 to limit that has the most steps to 1; of several the first.",
    "1 到 limit 中到 1 步数最多的数，多个时取第一个。",
    args(between(1, 30)),
    uses=(steps_to_one, place_of_max),
)
def longest_way(limit):
    steps = []
    for n in range(1, limit + 1):
        steps.append(steps_to_one(n))
    return place_of_max(steps) + 1


@reference(
    "The coins left after paying the prices in order; what is too much is not paid.",
    "依次付款后剩下的硬币，不够的不付。",
    args(between(3, 15), listed(between(1, 8), 0, 4)),
    uses=(Wallet,),
)
def pay_prices(coins, prices):
    wallet = Wallet(coins)
    for price in prices:
        wallet.pay(price)
    return wallet.coins


@reference(
    "Where a robot is after all steps: t turns it, other chars are steps.",
    "机器人走完后的位置：t 为转向，其他字符为前进。",
    args(spelled("ttgg", 1, 7)),
    uses=(Robot,),
)
def walk(text):
    robot = Robot()
    for char in text:
        if char == "t":
            robot.turn()
        else:
            robot.go()
    return [robot.x, robot.y]


@reference(
    "The items, each once, most common first, equally common ones in rising order.",
    "按出现次数从多到少排列的各项，每项一次，次数相同的升序。",
    args(listed(letter, 0, 6)),
    uses=(count_each, keys_by_value),
)
def by_count(items):
    return keys_by_value(count_each(items))


@reference(
    "The sums of the first 1, 2, 3 … items up to the first that is larger than limit.",
    "前 1、2、3……项的和，到第一个大于 limit 的为止（不含）。",
    args(listed(between(-2, 6), 0, 6), between(2, 12)),
    uses=(running_sums, take_until),
)
def sums_up_to(items, limit):
    return take_until(running_sums(items), limit)


@reference(
    "The words that have the same letters as word, but are another word.",
    "与 word 字母相同但不是同一个词的词。",
    args(listed(spelled("ab", 1, 3), 0, 5), spelled("ab", 1, 3)),
    uses=(same_letters,),
)
def other_forms(words, word):
    result = []
    for other in words:
        if other != word and same_letters(other, word):
            result.append(other)
    return result


@reference(
    "The most words that one of the words could be made to by moving its letters.",
    "words 中某个词换位后能得到的其他词的最大个数。",
    args(listed(one_of("ab", "ba", "aab", "aba", "baa", "b", "bb"), 0, 6)),
    uses=(other_forms,),
)
def most_forms(words):
    best = 0
    for word in words:
        best = max(best, len(other_forms(words, word)))
    return best


@reference(
    "The numbers in this base, joined by -.",
    "各数的 base 进制写法，用 - 连接。",
    args(listed(between(0, 30), 0, 3), between(2, 9)),
    uses=(in_base,),
)
def join_base(items, base):
    result = []
    for item in items:
        result.append(in_base(item, base))
    return "-".join(result)


@reference(
    "Each item once, in the order of its first place, 0 at the end.",
    "每项只留一次，按首次出现的顺序，0 在末尾。",
    args(listed(between(0, 3), 0, 6)),
    uses=(each_once, zeros_last),
)
def tidy(items):
    return zeros_last(each_once(items))


@reference(
    "The one digit that the digits of n sum to in the end, in Roman letters.",
    "反复求 n 的各位数字之和得到的一位数，用罗马数字写。",
    args(either(positive, large)),
    uses=(digit_root, roman),
)
def roman_root(n):
    return roman(digit_root(n))
