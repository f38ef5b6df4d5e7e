"""References about dictionaries."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: B007, F402, PERF401, RUF005, SIM110

from agent_envs.code.tasks.inputs import args, between, digit, letter, listed, one_of, pair, small, table, word, words
from agent_envs.code.tasks.reference import reference

_small_table = table(letter, digit, 0, 4)


@reference(
    "For each value the last key that has it.",
    "每个值对应最后一个有该值的键。",
    args(table(letter, between(0, 2), 0, 5)),
)
def swap_keys(table):
    result = {}
    for key in table:
        value = table[key]
        result[value] = key
    return result


@reference("For each length the words that have it.", "按长度给各词分组。", args(words))
def words_by_length(words):
    result = {}
    for word in words:
        size = len(word)
        if size not in result:
            result[size] = []
        result[size].append(word)
    return result


@reference(
    "A table from pairs; the first pair of a key counts.",
    "由键值对生成字典，同一个键以第一对为准。",
    args(listed(pair(letter, digit), 0, 5)),
)
def first_pairs(pairs):
    result = {}
    for key, value in pairs:
        if key not in result:
            result[key] = value
    return result


@reference(
    "The keys that a and b share with equal values, in rising order.",
    "a 与 b 中值也相同的共同键，升序。",
    args(table(letter, between(0, 2), 1, 5), table(letter, between(0, 2), 1, 5)),
)
def equal_keys(a, b):
    result = []
    for key in sorted(a):
        if key in b and a[key] == b[key]:
            result.append(key)
    return result


@reference(
    "The table with key old called new; the value stays.",
    "把键 old 改名为 new，值不变。",
    args(_small_table, letter, one_of("d", "e")),
)
def rename_key(table, old, new):
    result = {}
    for key in table:
        if key == old:
            result[new] = table[key]
        else:
            result[key] = table[key]
    return result


@reference("For each word its places in words.", "每个词在 words 中的各个位置。", args(listed(letter, 0, 6)))
def places(words):
    result = {}
    for i in range(len(words)):
        word = words[i]
        result[word] = result.get(word, []) + [i]
    return result


@reference(
    "The end of the way from key to table[key] and on, at most 5 steps.",
    "从 key 沿 table[key] 一直走到尽头的键，最多 5 步。",
    args(table(between(0, 6), between(0, 6), 2, 6), between(0, 6)),
)
def follow(table, key):
    for step in range(5):
        if key not in table:
            break
        key = table[key]
    return key


@reference(
    "The items of words that have no key in table, each once.",
    "words 中不是 table 的键的词，每个一次。",
    args(listed(letter, 0, 5), table(letter, digit, 0, 2)),
)
def missing_keys(words, table):
    result = []
    for word in words:
        if word in table or word in result:
            continue
        result.append(word)
    return result


@reference(
    "True when the tables have the same keys, and no value in a is more than in b.",
    "键相同且 a 的值都不大于 b 的值时为 True。",
    args(table(letter, between(0, 2), 1, 2), table(letter, between(1, 3), 1, 3)),
)
def at_most(a, b):
    if sorted(a) != sorted(b):
        return False
    for key in a:
        if a[key] > b[key]:
            return False
    return True


@reference(
    "The words as one text, each one replaced that table has a word for.",
    "把 table 中有替换的词换掉，再用空格连接。",
    args(listed(letter, 1, 5), table(letter, word, 0, 3)),
)
def replace_words(words, table):
    result = []
    for word in words:
        result.append(table.get(word, word))
    return " ".join(result)


@reference(
    "The first item that comes a second time, else an empty text.",
    "第一个第二次出现的项，没有则为空。",
    args(listed(word, 0, 7)),
)
def first_twice(items):
    seen = {}
    for item in items:
        if item in seen:
            return item
        seen[item] = True
    return ""


@reference(
    "The table with only the keys from low to high.",
    "只保留 low 到 high 之间的键。",
    args(table(between(0, 9), letter, 1, 6), between(0, 4), between(5, 9)),
)
def keys_between(table, low, high):
    result = {}
    for key in table:
        if key >= low and key <= high:
            result[key] = table[key]
    return result


@reference(
    "The size of the longest list in table, 0 when there is none.",
    "table 中最长列表的长度，没有则为 0。",
    args(table(letter, listed(small, 0, 4), 0, 4)),
)
def longest_list(table):
    best = 0
    for items in table.values():
        if len(items) > best:
            best = len(items)
    return best


@reference(
    "The value at the end of the keys, one table in another; -1 when one is missing.",
    "按 keys 逐层查找的值，缺少时为 -1。",
    args(table(letter, table(letter, digit, 1, 3), 1, 3), lambda rng: [letter(rng), letter(rng)]),
)
def deep_value(table, keys):
    for key in keys:
        if key not in table:
            return -1
        table = table[key]
    return table
