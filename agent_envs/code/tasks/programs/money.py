"""References about money: prices, coins and what is left."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors

from agent_envs.code.tasks.inputs import args, between, digit, listed, one_of, spelled, word
from agent_envs.code.tasks.reference import reference

_price = between(1, 20)


@reference(
    "The price without that percent of it (rounded down), but at most 20 less.",
    "price 减去它的百分之 percent（取整），最多减 20。",
    args(between(10, 90), one_of(10, 20, 30, 50)),
)
def less_percent(price, percent):
    off = price * percent // 100
    if off > 20:
        off = 20
    return price - off


@reference(
    "The sum of prices with that percent of it added (rounded down).",
    "各价格之和，再加上其百分之 percent（取整）。",
    args(listed(_price, 1, 4), one_of(5, 10, 20)),
)
def add_percent(prices, percent):
    total = sum(prices)
    return total + total * percent // 100


@reference(
    "True when the sum of coins is at least price.",
    "coins 足够付 price 时为 True。",
    args(listed(one_of(1, 2, 5, 10), 0, 5), _price),
)
def can_pay(coins, price):
    for coin in coins:
        price -= coin
    return price <= 0


@reference(
    "The amount as n equal parts; what is left when n does not divide it makes the first ones larger by 1.",
    "把 amount 平分成 n 份，除不尽时前几份各多 1。",
    args(between(0, 40), between(1, 5)),
)
def share_amount(amount, n):
    share = amount // n
    more = amount % n
    return [share + 1] * more + [share] * (n - more)


@reference(
    "The amount as a price, for 305: 3.05.", "把以分计的 amount 写成价格，例如 305 写成 3.05。", args(between(0, 999))
)
def price_text(amount):
    rest = str(amount % 100)
    if len(rest) < 2:
        rest = "0" + rest
    return str(amount // 100) + "." + rest


@reference(
    "The changes added to money one by one; each time it is then below 0, 1 more is taken.",
    "把 changes 逐个加到 money 上，每次结果低于 0 时再减 1。",
    args(digit, listed(between(-9, 6), 0, 6)),
)
def pay_late(money, changes):
    for change in changes:
        money += change
        if money < 0:
            money -= 1
    return money


def _payments(rng):
    rows = [rng.sample("abc", 2) for _ in range(rng.randint(0, 4))]
    return [(first, second, rng.randint(1, 9)) for first, second in rows]


@reference(
    "For each name what it has at the end, 0 at the start: each row says who pays, to whom, and what amount.",
    "按 rows（付款人、收款人、金额）求每人从 0 起的余额。",
    args(_payments),
)
def pay_all(rows):
    result = {}
    for first, second, amount in rows:
        result[first] = result.get(first, 0) - amount
        result[second] = result.get(second, 0) + amount
    return result


@reference(
    "The day, from 1, on which money is below 0 when each day has its cost; 0 when there is none.",
    "每天花费 costs 中的一项，第几天（从 1 数）money 低于 0，没有则为 0。",
    args(between(5, 20), listed(digit, 0, 6)),
)
def empty_day(money, costs):
    for day in range(len(costs)):
        money -= costs[day]
        if money < 0:
            return day + 1
    return 0


@reference(
    "What coins are together: a is 1, b is 5 and c is 10.",
    "硬币总额：a 为 1，b 为 5，c 为 10。",
    args(spelled("abc", 0, 6)),
)
def coin_value(text):
    values = {"a": 1, "b": 5, "c": 10}
    total = 0
    for char in text:
        total += values[char]
    return total


@reference(
    "The coins that make amount: each coin, in order, as often as it still fits.",
    "凑成 amount 的硬币：依次取每种硬币，能取几个取几个。",
    args(between(0, 40), one_of([10, 5, 2, 1], [5, 2], [8, 3], [6, 4, 1])),
)
def give_change(amount, coins):
    result = []
    for coin in coins:
        while amount >= coin:
            amount -= coin
            result.append(coin)
    return result


@reference(
    "The largest step up from the price of a day to that of a later day, else 0.",
    "某天的价格到之后某天的价格最多上涨多少，至少为 0。",
    args(listed(between(1, 12), 1, 7)),
)
def best_days(prices):
    best = 0
    low = prices[0]
    for price in prices:
        low = min(low, price)
        best = max(best, price - low)
    return best


@reference(
    "How many items money can pay when the first costs price and each costs 1 more than the one before.",
    "第一件为 price，每件比前一件贵 1，用 money 能买几件。",
    args(between(0, 60), between(1, 8)),
)
def rising_price(money, price):
    count = 0
    while money >= price:
        money -= price
        price += 1
        count += 1
    return count


@reference(
    "0 below age 6; else 10, or 5 below 18 and above 64; 2 more from day 6 on.",
    "6 岁以下为 0，否则为 10，18 岁以下或 64 岁以上为 5；从第 6 天起加 2。",
    args(between(3, 70), between(1, 7)),
)
def age_price(age, day):
    price = 10
    if age < 6:
        return 0
    if age < 18 or age > 64:
        price = 5
    if day > 5:
        price += 2
    return price


@reference(
    "The name with the most money left: what it has without what it has paid; of several the first.",
    "余额（所有减去已付）最多的名字，多个时取第一个。",
    args(lambda rng: [(word(rng), rng.randint(3, 12), rng.randint(0, 9)) for _ in range(rng.randint(1, 4))]),
)
def most_left(rows):
    best = ""
    most = -99
    for name, money, paid in rows:
        left = money - paid
        if left > most:
            most = left
            best = name
    return best
