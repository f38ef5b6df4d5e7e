"""References about games: points, dice, cards and moves."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import args, between, count, listed, pair, small, spelled, table, together
from agent_envs.code.tasks.reference import reference

_dice = between(1, 6)
_cell = between(0, 4)


@reference(
    "The points of two dice: their sum, and twice that when they are equal.",
    "两个骰子的分数：点数之和，相同时加倍。",
    args(_dice, _dice),
)
def dice_points(a, b):
    if a == b:
        return 4 * a
    return a + b


def _two_hands(rng):
    size = rng.randint(1, 5)
    return [rng.randint(0, 2) for _ in range(size)], [rng.randint(0, 2) for _ in range(size)]


@reference(
    "How often a wins at the same place: 1 wins over 0, 2 over 1 and 0 over 2.",
    "同一位置上 a 胜的次数：1 胜 0，2 胜 1，0 胜 2。",
    together(_two_hands),
)
def count_wins(a, b):
    wins = 0
    for i in range(len(a)):
        if (a[i] - b[i]) % 3 == 1:
            wins += 1
    return wins


@reference(
    "The place after a move by dice; where table has it as a key, its value; 20 at most.",
    "走 dice 步后的位置，若是 table 的键则换成其值，最多为 20。",
    args(between(0, 19), _dice, table(between(1, 20), between(1, 25), 2, 5)),
)
def move_by_table(place, dice, table):
    place += dice
    if place in table:
        place = table[place]
    return min(place, 20)


@reference(
    "The place after a move by dice; what is too much for goal goes back from it.",
    "走 dice 步后的位置，超过 goal 的步数从 goal 往回走。",
    args(between(5, 12), _dice, between(9, 14)),
)
def turn_at_goal(place, dice, goal):
    place += dice
    if place > goal:
        place = 2 * goal - place
    return place


@reference(
    "Three times the first number that at least three dice have, else 0.",
    "第一个至少出现三次的点数的三倍，没有则为 0。",
    args(listed(between(1, 4), 3, 6)),
)
def three_equal(dice):
    for number in dice:
        if dice.count(number) >= 3:
            return 3 * number
    return 0


@reference(
    "The points left after the hits, each of which takes 2 less than it says, but at least 0; never below 0.",
    "受到各次 hits 后的分数，每次比所写的少扣 2（至少扣 0），结果不低于 0。",
    args(between(4, 16), listed(between(0, 6), 0, 5)),
)
def points_left(points, hits):
    for hit in hits:
        if hit > 2:
            points -= hit - 2
    return max(points, 0)


@reference(
    "The cards of each of so many players, put out in turn.",
    "把 cards 轮流发给 players 个人，各人得到的牌。",
    args(listed(between(1, 9), 0, 7), count),
)
def give_cards(cards, players):
    parts = []
    for i in range(players):
        parts.append(cards[i::players])
    return parts


@reference(
    "The rounds until one player is left, when half of them (rounded down) go out in each.",
    "每轮淘汰一半（取整）的人，只剩一人需要几轮。",
    args(between(1, 60)),
)
def count_rounds(players):
    rounds = 0
    while players > 1:
        players -= players // 2
        rounds += 1
    return rounds


@reference(
    "True when a and b differ by one step in one of their two numbers and by two in the other.",
    "a 与 b 的两个数一个相差 1、另一个相差 2 时为 True。",
    args(pair(_cell, _cell), pair(_cell, _cell)),
)
def is_two_and_one(a, b):
    right = abs(a[0] - b[0])
    up = abs(a[1] - b[1])
    return right * up == 2


@reference(
    "True when x, y and a, b share a row, a column or a diagonal.",
    "(x, y) 与 (a, b) 同行、同列或同一斜线时为 True。",
    args(_cell, _cell, _cell, _cell),
)
def on_one_line(x, y, a, b):
    if x == a or y == b:
        return True
    return abs(x - a) == abs(y - b)


def _piles(rng):
    piles = [rng.randint(0, 6) for _ in range(rng.randint(1, 4))]
    return piles, rng.randrange(len(piles)), rng.randint(1, 4)


@reference(
    "The piles after count are taken from the one at place, or all of it when it has fewer.",
    "从第 place 堆取走 count 个（不足则取完）后的各堆。",
    together(_piles),
)
def take_from_pile(piles, place, count):
    left = piles[place] - count
    if left < 0:
        left = 0
    piles[place] = left
    return piles


@reference(
    "The points of cards: each counts at most 10, and 10 more when there is a 1 and the sum is 11 at most.",
    "牌的分数：每张最多 10；若有 1 且和不超过 11，再加 10。",
    args(listed(between(1, 13), 1, 3)),
)
def card_points(cards):
    total = 0
    for card in cards:
        total += min(card, 10)
    if 1 in cards and total <= 11:
        total += 10
    return total


@reference(
    "Who first has goal points when text says who wins each time, a or b; empty when none has.",
    "text 为每轮胜者（a 或 b），谁先得 goal 分，没有则为空。",
    args(spelled("ab", 1, 7), between(2, 4)),
)
def first_to_goal(text, goal):
    points = {"a": 0, "b": 0}
    for char in text:
        points[char] += 1
        if points[char] == goal:
            return char
    return ""


@reference(
    "The points of text, where x is a game that one wins: 1 for the first in a row, 2 for the second and so on.",
    "text 的总分（x 为胜）：连胜的第一场得 1 分，第二场 2 分，依此类推。",
    args(spelled("xxo", 0, 8)),
)
def row_points(text):
    total = 0
    row = 0
    for char in text:
        if char == "x":
            row += 1
            total += row
        else:
            row = 0
    return total


@reference(
    "The level for points, from 1: the next one costs 10 points, the one after it 20, then 30 and so on.",
    "points 达到的等级（从 1 起）：升下一级要 10 分，再下一级 20 分，然后 30 分，依此类推。",
    args(between(0, 160)),
)
def game_level(points):
    level = 1
    need = 10
    while points >= need:
        points -= need
        need += 10
        level += 1
    return level


@reference(
    "For each letter of guess x when code has it at that place, o when at another, else a point.",
    "guess 的每个字母：code 同一位置有则为 x，其他位置有则为 o，否则为点。",
    args(spelled("abcd", 3, 3), spelled("abcde", 3, 3)),
)
def guess_marks(code, guess):
    result = ""
    for i in range(len(guess)):
        if guess[i] == code[i]:
            result += "x"
        elif guess[i] in code:
            result += "o"
        else:
            result += "."
    return result


def _rolls(rng):
    return [
        number for _ in range(rng.randint(1, 3)) for number in rng.choice(((small(rng), 5), (4, 6), (3, 7), (5, 5)))
    ]


@reference(
    "The sum of all pairs of items (first and second, third and so on), a pair with the sum 10 counted twice.",
    "两两一组（第一与第二、第三与第四……）求和，和为 10 的组算两次。",
    args(_rolls),
)
def pair_points(items):
    total = 0
    for i in range(0, len(items) - 1, 2):
        points = items[i] + items[i + 1]
        if points == 10:
            points += 10
        total += points
    return total
