"""Small machines: classes. A method that changes its object gives it back, so that a check is one chain of calls."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: SIM300

from agent_envs.code.tasks.inputs import args, between, chain, digit
from agent_envs.code.tasks.reference import reference


@reference(
    "A number that stays from 0 to limit: up and down change it by step.",
    "始终在 0 到 limit 之间的数：up 增加 step，down 减少 step。",
    chain(args(between(3, 9)), {"up": args(between(1, 5)), "down": args(between(1, 5))}, "value"),
)
class Gauge:
    def __init__(self, limit):
        self.limit = limit
        self.value = 0

    def up(self, step):
        self.value = min(self.limit, self.value + step)
        return self

    def down(self, step):
        self.value = max(0, self.value - step)
        return self


@reference(
    "A clock of hours 0 to 23: add moves it on, text is the hour with two digits.",
    "时钟（0 到 23 时）：add 往后拨，text 是两位数的小时。",
    chain(args(between(0, 23)), {"add": args(between(1, 30))}, "text()", "hour", most=2),
)
class Clock:
    def __init__(self, hour):
        self.hour = hour

    def add(self, hours):
        self.hour = (self.hour + hours) % 24
        return self

    def text(self):
        if self.hour < 10:
            return "0" + str(self.hour)
        return str(self.hour)


@reference(
    "Lights 0 to size - 1, all off: press changes one and those beside it; on counts.",
    "size 盏灯，开始全灭：press 切换一盏及其左右；on 为亮着的数目。",
    chain(args(between(3, 6)), {"press": args(between(0, 5))}, "on()", "lights"),
)
class Lights:
    def __init__(self, size):
        self.lights = [0] * size

    def press(self, place):
        for i in range(len(self.lights)):
            if abs(i - place) <= 1:
                self.lights[i] = 1 - self.lights[i]
        return self

    def on(self):
        return sum(self.lights)


@reference(
    "A robot at x, y that looks to 0 up, 1 right, 2 down or 3 left: turn to the right, go a step.",
    "机器人位于 x、y，朝向 0 上、1 右、2 下、3 左：turn 右转，go 走一步。",
    chain(args(), {"turn": args(), "go": args()}, "x", "y", "side", most=6),
)
class Robot:
    def __init__(self):
        self.x, self.y, self.side = 0, 0, 0

    def turn(self):
        self.side = (self.side + 1) % 4
        return self

    def go(self):
        self.x += [0, 1, 0, -1][self.side]
        self.y += [1, 0, -1, 0][self.side]
        return self


@reference(
    "A door that opens with the right code, but no more after two wrong tries in a row; wrong counts tries in vain.",
    "门用正确的密码打开；连续两次错误后再也打不开；wrong 是连续没打开的次数。",
    chain(args(between(1, 2)), {"enter": args(between(1, 3))}, "open", "wrong", most=5),
)
class Door:
    def __init__(self, code):
        self.code = code
        self.open = False
        self.wrong = 0

    def enter(self, code):
        if code == self.code and self.wrong < 2:
            self.open = True
            self.wrong = 0
        else:
            self.wrong += 1
        return self


@reference(
    "A lift of floors 0 to top: go moves to a floor there is; moved sums the floors passed.",
    "电梯（0 到 top 层）：go 去存在的楼层；moved 累计经过的层数。",
    chain(args(between(3, 6)), {"go": args(between(0, 7))}, "moved", "floor"),
)
class Lift:
    def __init__(self, top):
        self.top = top
        self.floor = 0
        self.moved = 0

    def go(self, floor):
        if 0 <= floor and floor <= self.top:
            self.moved += abs(floor - self.floor)
            self.floor = floor
        return self


@reference(
    "Counts from start by step; next goes on, and back returns to start.",
    "从 start 起每次加 step：next 前进，back 回到 start。",
    chain(args(digit, between(1, 4)), {"next": args(), "back": args()}, "value", most=6),
)
class Counter:
    def __init__(self, start, step):
        self.start = start
        self.step = step
        self.value = start

    def next(self):
        self.value += self.step
        return self

    def back(self):
        self.value = self.start
        return self


@reference(
    "A heater: on below low degrees, off above high, else as it was; see tells it the degrees.",
    "加热器：低于 low 打开，高于 high 关闭，其间不变；see 告知温度。",
    chain(args(between(3, 5), between(6, 8)), {"see": args(between(1, 10))}, "on", "changes", most=5),
)
class Heater:
    def __init__(self, low, high):
        self.low, self.high = low, high
        self.on, self.changes = False, 0

    def see(self, degrees):
        if not self.on and degrees < self.low:
            self.on = True
            self.changes += 1
        elif self.on and degrees > self.high:
            self.on = False
            self.changes += 1
        return self
