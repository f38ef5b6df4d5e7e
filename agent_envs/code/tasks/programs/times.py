"""References about clocks, days and dates."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors

from agent_envs.code.tasks.inputs import args, between, either, listed, one_of, ordered, pair, together
from agent_envs.code.tasks.reference import reference

_hour = between(0, 23)


@reference(
    "The hours from now to the next goal on a clock of 24 hours.",
    "24 小时制下从 now 到下一个 goal 的小时数。",
    args(_hour, _hour),
)
def hours_until(now, goal):
    hours = goal - now
    if hours < 0:
        hours += 24
    return hours


def _clock(rng):
    return f"{rng.randint(0, 12)}:{rng.randint(0, 59):02}"


@reference("The minutes that a time such as 1:15 is after 0:00.", "1:15 这样的时刻距 0:00 的分钟数。", args(_clock))
def clock_minutes(text):
    place = text.find(":")
    hours = int(text[:place])
    return hours * 60 + int(text[place + 1 :])


@reference(
    "The days of a month from 1 to 12; month 2 has 29 in a leap year, else 28.",
    "某月（1 到 12）的天数，2 月在闰年为 29，否则为 28。",
    args(either(between(1, 12), one_of(2, 4, 6, 9, 11)), one_of(True, False)),
)
def month_days(month, leap):
    if month == 2:
        return 28 + leap
    if month in [4, 6, 9, 11]:
        return 30
    return 31


@reference(
    "How many of count days are before day 5 of their week; days are 0 to 6, day is the first.",
    "从星期 day（0 到 6）起的 count 天中，小于 5 的天数。",
    args(between(0, 6), between(0, 16)),
)
def week_days(day, count):
    total = 0
    for i in range(count):
        if (day + i) % 7 < 5:
            total += 1
    return total


@reference(
    "The number of a day in the year, for its month and day; month 2 has 28 days.",
    "某月某日是一年中的第几天，2 月有 28 天。",
    args(between(1, 12), between(1, 28)),
)
def day_of_year(month, day):
    sizes = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30]
    for i in range(month - 1):
        day += sizes[i]
    return day


@reference(
    "The later of two times, each as hour and minutes.",
    "两个时刻（时、分）中较晚的。",
    args(pair(between(7, 9), between(0, 59)), pair(between(7, 9), between(0, 59))),
)
def later_time(a, b):
    if a[0] > b[0]:
        return a
    if a[0] == b[0] and a[1] > b[1]:
        return a
    return b


@reference(
    "The hour and the minutes of a time when more minutes have passed; after 23:59 comes 0:00.",
    "时刻 time（时、分）过 more 分钟后的时和分，23:59 之后是 0:00。",
    args(pair(_hour, between(0, 59)), between(0, 200)),
)
def add_minutes(time, more):
    minutes = time[0] * 60 + time[1] + more
    hour = minutes // 60 % 24
    return [hour, minutes % 60]


@reference(
    "How long it is from now to the first of the rising times that is not before it, else -1.",
    "从 now 到升序的 times 中第一个不早于它的时刻还有多久，没有则为 -1。",
    args(ordered(listed(between(0, 30), 1, 5)), between(0, 25)),
)
def next_time(times, now):
    for time in times:
        if time >= now:
            return time - now
    return -1


def _date(low, high):
    return lambda rng: [rng.randint(low, high), rng.randint(1, 4), rng.randint(1, 9)]


@reference(
    "The whole years from born to today, each as year, month and day.",
    "从 born 到 today（年、月、日）的整年数。",
    args(_date(2000, 2010), _date(2015, 2025)),
)
def age(born, today):
    years = today[0] - born[0]
    if today[1:] < born[1:]:
        years -= 1
    return years


@reference(
    "The sum of the hours between a start and the end after it: times are start, end, start, end and so on.",
    "times 依次为开始、结束、开始、结束……，求各段时长之和。",
    args(ordered(listed(_hour, 0, 7))),
)
def sum_hours(times):
    total = 0
    for i in range(0, len(times) - 1, 2):
        total += times[i + 1] - times[i]
    return total


def _two_times(rng):
    plan = sorted(rng.randint(0, 30) for _ in range(rng.randint(1, 4)))
    return plan, [time + rng.randint(-3, 5) for time in plan]


@reference(
    "How many minutes the times are late together, each after its plan; before the plan is not late.",
    "各次迟到的分钟数之和，早到不算。",
    together(_two_times),
)
def late_minutes(plan, times):
    late = 0
    for i in range(len(plan)):
        late += max(0, times[i] - plan[i])
    return late


@reference(
    "The month and its day for a day of the year counted from 1; month 2 has 28 days.",
    "一年中第 day 天的月和日，2 月有 28 天。",
    args(between(1, 181)),
)
def date_of_day(day):
    sizes = [31, 28, 31, 30, 31, 30]
    month = 0
    while day > sizes[month]:
        day -= sizes[month]
        month += 1
    return [month + 1, day]


@reference(
    "The hour of 0 to 23 as one of 1 to 12 with a before 12, else p; 0 and 12 are 12.",
    "把 0 到 23 时写成 1 到 12 加 a（12 时前）或 p，0 和 12 写作 12。",
    args(_hour),
)
def half_day_hour(hour):
    sign = "a"
    if hour >= 12:
        sign = "p"
        hour -= 12
    if hour == 0:
        hour = 12
    return str(hour) + sign


@reference(
    "The seconds as hours, minutes and seconds, for 3605: 1h5s; what is 0 is left out.",
    "把秒写成时分秒，例如 3605 写成 1h5s，为 0 的不写。",
    args(either(between(0, 4000), one_of(3600, 3605, 60, 120, 7260))),
)
def long_time(seconds):
    result = ""
    for size, name in [(3600, "h"), (60, "m"), (1, "s")]:
        if seconds >= size:
            result += str(seconds // size) + name
            seconds = seconds % size
    return result


@reference(
    "True when the year has that month and that day; month 2 has 28 days.",
    "一年中有这个月和日时为 True，2 月有 28 天。",
    args(either(between(0, 13), one_of(2, 4, 6, 9)), either(between(27, 32), between(0, 31))),
)
def is_date(month, day):
    if month < 1 or month > 12 or day < 1:
        return False
    if month == 2:
        return day <= 28
    if month in [4, 6, 9, 11]:
        return day <= 30
    return day <= 31


@reference(
    "A clock rings as often as its hour says, and after 12 comes 1: the rings of so many hours from hour on.",
    "钟几点就敲几下，12 点之后是 1 点：从 hour 起 hours 次共敲几下。",
    args(between(1, 12), between(0, 6)),
)
def clock_rings(hour, hours):
    total = 0
    while hours > 0:
        total += hour
        hour = hour % 12 + 1
        hours -= 1
    return total
