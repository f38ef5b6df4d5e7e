"""Small classes. A method that changes its object gives it back, so that a check is one chain of calls."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors

from agent_envs.code.tasks.inputs import args, between, chain, digit, letter, listed, one_of, small, word
from agent_envs.code.tasks.reference import reference


@reference(
    "Coins: add puts some in; pay takes some out, or none when there are too few.",
    "钱包：add 放入硬币；pay 取出硬币，不够则不取。",
    chain(args(small), {"add": args(between(1, 5)), "pay": args(between(1, 8))}, "coins"),
)
class Wallet:
    def __init__(self, coins):
        self.coins = coins

    def add(self, amount):
        self.coins += amount
        return self

    def pay(self, amount):
        if amount <= self.coins:
            self.coins -= amount
        return self


@reference(
    "A stack: push puts an item on top, pop takes it away; top is the last item, or -1.",
    "栈：push 放到顶上，pop 拿走顶上的；top 是最后一项，没有则为 -1。",
    chain(args(), {"push": args(digit), "pop": args()}, "top()", "items", most=5),
)
class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)
        return self

    def pop(self):
        self.items = self.items[:-1]
        return self

    def top(self):
        return self.items[-1] if self.items else -1


@reference(
    "A line: join adds an item at the end, unless it is there; serve takes the first one away.",
    "队列：join 把不在队中的项加到末尾；serve 取走第一项。",
    chain(args(), {"join": args(letter), "serve": args()}, "items", most=5),
)
class Line:
    def __init__(self):
        self.items = []

    def join(self, item):
        if item not in self.items:
            self.items.append(item)
        return self

    def serve(self):
        self.items = self.items[1:]
        return self


@reference(
    "Points of a game: best is the most points so far, count how often there were any.",
    "比赛得分：best 是最高分，count 是得分次数。",
    chain(args(), {"add": args(digit)}, "best", "count", most=5),
)
class Scores:
    def __init__(self):
        self.best = 0
        self.count = 0

    def add(self, points):
        if points > 0:
            self.count += 1
        if points > self.best:
            self.best = points
        return self


@reference(
    "A bag with how many of each item it has: put adds one, take takes one if there is any, 0 may be left.",
    "袋子记录每种物品的个数：put 放一个，take 有则取一个，可剩 0 个。",
    chain(args(), {"put": args(letter), "take": args(letter)}, "counts", most=5),
)
class Bag:
    def __init__(self):
        self.counts = {}

    def put(self, item):
        self.counts[item] = self.counts.get(item, 0) + 1
        return self

    def take(self, item):
        if self.counts.get(item, 0) > 0:
            self.counts[item] -= 1
        return self


@reference(
    "A text to write: add words at the end, undo takes away what the last add wrote.",
    "写文本：add 在末尾加词，undo 撤销上一次 add。",
    chain(args(), {"add": args(word), "undo": args()}, "text()", most=5),
)
class Page:
    def __init__(self):
        self.parts = []

    def add(self, word):
        self.parts.append(word)
        return self

    def undo(self):
        if self.parts:
            self.parts.pop()
        return self

    def text(self):
        return " ".join(self.parts)


@reference(
    "Keeps only the last size numbers: add one, total is their sum.",
    "只保留最后 size 个数：add 加一个，total 为它们的和。",
    chain(args(between(1, 3)), {"add": args(digit)}, "total()", "items", most=5),
)
class Window:
    def __init__(self, size):
        self.size = size
        self.items = []

    def add(self, item):
        self.items.append(item)
        if len(self.items) > self.size:
            self.items = self.items[1:]
        return self

    def total(self):
        return sum(self.items)


@reference(
    "Songs in order: add one at the end, next moves on and begins again after the last.",
    "歌单：add 加到末尾，next 换下一首，最后一首之后回到第一首。",
    chain(args(listed(letter, 1, 3)), {"add": args(letter), "next": args()}, "now()", "place", most=5),
)
class Songs:
    def __init__(self, names):
        self.names = names
        self.place = 0

    def add(self, name):
        self.names.append(name)
        return self

    def next(self):
        self.place = (self.place + 1) % len(self.names)
        return self

    def now(self):
        return self.names[self.place]


@reference(
    "Days with rain: see adds the rain of a day; wet counts days with some, longest is the most such days in a row.",
    "雨量：see 记一天的雨；wet 是下雨天数，longest 是连续下雨最多的天数。",
    chain(args(), {"see": args(one_of(0, 1, 2))}, "wet", "longest", most=7),
)
class Weather:
    def __init__(self):
        self.wet, self.row, self.longest = 0, 0, 0

    def see(self, rain):
        if rain == 0:
            self.row = 0
            return self
        self.wet += 1
        self.row += 1
        self.longest = max(self.longest, self.row)
        return self


@reference(
    "A word to guess: guess says a letter; shown has - for letters not said; left falls with each wrong one.",
    "猜词：guess 猜一个字母；shown 中没猜到的字母为 -，left 是还能错几次。",
    chain(
        args(one_of("noon", "tree", "sun", "egg")), {"guess": args(one_of("n", "e", "o", "s", "t"))}, "shown()", "left"
    ),
)
class Guess:
    def __init__(self, word):
        self.word, self.said, self.left = word, "", 3

    def guess(self, char):
        if char not in self.word:
            self.left -= 1
        self.said += char
        return self

    def shown(self):
        said = self.said
        marks = [c if c in said else "-" for c in self.word]
        return "".join(marks)
