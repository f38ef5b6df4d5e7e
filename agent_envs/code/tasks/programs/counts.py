"""References about dictionaries of counts and points."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: F402, PERF401

from agent_envs.code.tasks.inputs import args, between, digit, letter, listed, pair, scores, table, word, words
from agent_envs.code.tasks.reference import reference

_small_table = table(letter, digit, 0, 4)


@reference("How often each item comes.", "每一项出现的次数。", args(listed(letter, 0, 6)))
def count_each(items):
    result = {}
    for item in items:
        if item not in result:
            result[item] = 0
        result[item] += 1
    return result


@reference(
    "The values of a and b together, summed where both have a key.",
    "合并 a 与 b，两者都有的键把值相加。",
    args(_small_table, _small_table),
)
def add_tables(a, b):
    result = dict(a)
    for key in b:
        result[key] = result.get(key, 0) + b[key]
    return result


@reference(
    "The first key with the largest value, empty when there is none.", "值最大的第一个键，没有则为空。", args(scores)
)
def best_key(table):
    best = ""
    for key in table:
        if best == "" or table[key] > table[best]:
            best = key
    return best


@reference(
    "The keys whose value is more than limit, in rising order.",
    "值大于 limit 的键，升序。",
    args(scores, between(1, 6)),
)
def keys_above(table, limit):
    result = []
    for key in table:
        if table[key] > limit:
            result.append(key)
    return sorted(result)


@reference(
    "The values of keys, 0 for a key that is missing.",
    "keys 中各键的值，缺少的为 0。",
    args(_small_table, listed(letter, 1, 4)),
)
def values_of(table, keys):
    result = []
    for key in keys:
        if key in table:
            result.append(table[key])
        else:
            result.append(0)
    return result


@reference(
    "The sum of all values but that of the key left out.", "除键 key 之外所有值之和。", args(_small_table, letter)
)
def sum_without(table, key):
    total = 0
    for other in table:
        if other == key:
            continue
        total += table[other]
    return total


@reference(
    "The best points of each name in pairs of name and points.",
    "每个名字的最高分。",
    args(listed(pair(letter, digit), 0, 6)),
)
def best_points(pairs):
    best = {}
    for name, points in pairs:
        if name not in best or points > best[name]:
            best[name] = points
    return best


@reference(
    "The keys in order of falling value, equal ones in rising order.",
    "按值降序排列的键，值相同的按键升序。",
    args(scores),
)
def keys_by_value(table):
    keys = sorted(table)
    result = []
    while keys:
        best = keys[0]
        for key in keys:
            if table[key] > table[best]:
                best = key
        result.append(best)
        keys.remove(best)
    return result


@reference(
    "The sum of all values of the tables in table.",
    "table 中各字典的所有值之和。",
    args(table(letter, table(letter, digit, 0, 3), 0, 3)),
)
def deep_total(table):
    total = 0
    for key in table:
        for value in table[key].values():
            total += value
    return total


@reference(
    "What the items cost by prices; an item without a price costs 1.",
    "按 prices 计算 items 的总价，没有标价的为 1。",
    args(listed(letter, 0, 5), _small_table),
)
def total_price(items, prices):
    total = 0
    for item in items:
        total += prices.get(item, 1)
    return total


@reference(
    "The table without values of 0; other values one less.",
    "去掉值为 0 的键，其余的值减一。",
    args(table(letter, between(0, 3), 0, 5)),
)
def use_one(table):
    result = {}
    for key, value in table.items():
        if value > 0:
            result[key] = value - 1
    return result


@reference(
    "How many keys have the value that most keys have.",
    "最常见的值有多少个键。",
    args(table(word, between(0, 2), 0, 6)),
)
def most_shared(table):
    values = list(table.values())
    best = 0
    for value in values:
        best = max(best, values.count(value))
    return best


@reference("For each first letter the number of words that begin with it.", "每个首字母开头的词数。", args(words))
def count_first_letters(words):
    result = {}
    for word in words:
        first = word[0]
        result[first] = result.get(first, 0) + 1
    return result


@reference(
    "What is left of stock after the items were taken; never below 0.",
    "从 stock 中取走 items 后的剩余，不低于 0。",
    args(table(letter, between(0, 3), 1, 4), listed(letter, 0, 5)),
)
def take_items(stock, items):
    for item in items:
        if stock.get(item, 0) > 0:
            stock[item] -= 1
    return stock


@reference(
    "The keys in rising order, as long as their values sum to limit at most.",
    "升序的键，其值之和不超过 limit 为止。",
    args(table(letter, digit, 1, 5), between(0, 15)),
)
def keys_until(table, limit):
    result = []
    for key in sorted(table):
        limit -= table[key]
        if limit < 0:
            break
        result.append(key)
    return result
