"""References about pairs, and about points in the plane."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401, SIM110

from agent_envs.code.tasks.inputs import args, between, letter, listed, number, pair, small, smalls, together, word
from agent_envs.code.tasks.reference import reference

_point = pair(small, small)
_points = listed(_point, 1, 4)
_far = pair(number, number)


@reference("The pairs with their two items swapped.", "交换每一对中的两项。", args(listed(pair(letter, small), 0, 4)))
def turn_pairs(pairs):
    result = []
    for first, second in pairs:
        result.append((second, first))
    return result


@reference(
    "Pairs of an item of a, from the start, and an item of b, from the end, as long as both have one.",
    "a 从头、b 从尾依次各取一项配对，直到一方取完。",
    args(smalls, smalls),
)
def end_pairs(a, b):
    result = []
    for i in range(min(len(a), len(b))):
        result.append([a[i], b[-1 - i]])
    return result


@reference(
    "Each item with the next one, where that is larger.", "每一项与后一项组成的对，仅限后一项更大时。", args(smalls)
)
def rising_pairs(items):
    result = []
    for i in range(len(items) - 1):
        if items[i] < items[i + 1]:
            result.append((items[i], items[i + 1]))
    return result


@reference(
    "The steps from point a to point b when a step goes up, down, left or right.",
    "每步只能上下左右走，从点 a 到点 b 的步数。",
    args(_far, _far),
)
def steps_between(a, b):
    right = abs(a[0] - b[0])
    up = abs(a[1] - b[1])
    return right + up


@reference("The area of the box between points a and b.", "以 a、b 两点为对角的矩形面积。", args(_far, _far))
def box_area(a, b):
    width = a[0] - b[0]
    height = a[1] - b[1]
    return abs(width * height)


@reference(
    "True when x is from 0 to width and y from 0 to height, width and height left out.",
    "x 在 0 到 width（不含）、y 在 0 到 height（不含）之间时为 True。",
    args(between(-1, 5), between(-1, 5), between(2, 5), between(2, 5)),
)
def is_inside(x, y, width, height):
    if x < 0 or y < 0:
        return False
    return x < width and y < height


@reference(
    "The points seen in a mirror where x is line; y stays.",
    "各点以直线 x = line 为轴的镜像，y 不变。",
    args(listed(_point, 0, 4), between(0, 4)),
)
def mirror_points(points, line):
    result = []
    for x, y in points:
        result.append((2 * line - x, y))
    return result


@reference(
    "How many pairs also stand in pairs with their items swapped.",
    "有多少对，其两项互换后也在 pairs 中。",
    args(listed(pair(between(0, 2), between(0, 2)), 0, 6)),
)
def two_way_pairs(pairs):
    total = 0
    for a, b in pairs:
        if (b, a) in pairs:
            total += 1
    return total


def _chain(rng):
    places = [rng.randint(0, 3) for _ in range(rng.randint(2, 5))]
    pairs = [(places[i], places[i + 1]) for i in range(len(places) - 1)]
    if rng.random() < 0.5:
        pairs[rng.randrange(len(pairs))] = (rng.randint(0, 3), rng.randint(0, 3))
    return pairs


@reference(
    "True when each pair begins with what the one before ends with.",
    "每一对的第一项都等于前一对的第二项时为 True。",
    args(_chain),
)
def is_chain(pairs):
    for i in range(1, len(pairs)):
        if pairs[i][0] != pairs[i - 1][1]:
            return False
    return True


@reference(
    "Each letter of text joined to each one before it, which comes first.",
    "每个字母与它之前的每个字母连成两字母，在前者写在前。",
    args(lambda rng: "".join(rng.choice("abcde") for _ in range(rng.randint(1, 4)))),
)
def letter_pairs(text):
    result = []
    for i in range(len(text)):
        for j in range(i):
            result.append(text[j] + text[i])
    return result


@reference(
    "The place where one is who begins at 0, 0 and takes all moves (right, up).",
    "从 (0, 0) 出发走完 moves（右、上）后的位置。",
    args(listed(pair(between(-4, 4), between(-4, 4)), 0, 4)),
)
def end_point(moves):
    x = 0
    y = 0
    for right, up in moves:
        x += right
        y += up
    return [x, y]


@reference(
    "The smallest x and y, then the largest x and y of the points.",
    "各点中最小的 x、y，再接最大的 x、y。",
    args(_points),
)
def smallest_box(points):
    left, low = points[0]
    right, high = points[0]
    for x, y in points[1:]:
        left = min(left, x)
        low = min(low, y)
        right = max(right, x)
        high = max(high, y)
    return [left, low, right, high]


@reference(
    "The first point with the fewest steps up, down, left or right to place.",
    "到 place 步数（上下左右）最少的第一个点。",
    args(_points, _point),
)
def nearest_point(points, place):
    best = points[0]
    least = 99
    for x, y in points:
        steps = abs(x - place[0]) + abs(y - place[1])
        if steps < least:
            least = steps
            best = (x, y)
    return best


def _partners(rng):
    pairs = [(word(rng), word(rng)) for _ in range(rng.randint(1, 4))]
    return pairs, rng.choice(rng.choice(pairs)) if rng.random() < 0.8 else word(rng)


@reference(
    "The other item of the first pair that has name, else an empty text.",
    "第一个含 name 的对中的另一项，没有则为空。",
    together(_partners),
)
def other_of_pair(pairs, name):
    for a, b in pairs:
        if a == name:
            return b
        if b == name:
            return a
    return ""
