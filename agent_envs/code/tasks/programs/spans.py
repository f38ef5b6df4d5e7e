"""References about spans, from a start to an end, and windows of a list."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: B007, PERF401, SIM110

from agent_envs.code.tasks.inputs import args, between, count, digit, listed, smalls, some_smalls
from agent_envs.code.tasks.reference import reference


def _span(rng):
    start, end = sorted(rng.sample(range(10), 2))
    return (start, end)


_spans = listed(_span, 0, 4)
_some_spans = listed(_span, 1, 3)


@reference(
    "The length of what spans a and b share; 0 when there is none.",
    "区间 a 与 b 重叠部分的长度，没有则为 0。",
    args(_span, _span),
)
def shared_length(a, b):
    start = max(a[0], b[0])
    end = min(a[1], b[1])
    return max(0, end - start)


@reference(
    "True when n lies in a span, whose end is left out.",
    "n 在某个区间（不含终点）内时为 True。",
    args(_some_spans, digit),
)
def in_some_span(spans, n):
    for start, end in spans:
        if start <= n and n < end:
            return True
    return False


@reference(
    "The sum of the lengths of the spans, a length above limit as limit.",
    "各区间长度之和，超过 limit 的长度按 limit 算。",
    args(_spans, between(2, 5)),
)
def short_spans(spans, limit):
    total = 0
    for start, end in spans:
        total += min(end - start, limit)
    return total


@reference("All lists of size neighbours, in order.", "依次列出所有由相邻 size 项组成的列表。", args(smalls, count))
def each_window(items, size):
    result = []
    for i in range(len(items) - size + 1):
        result.append(items[i : i + size])
    return result


@reference(
    "For each place the largest of the item there and the size - 1 before it.",
    "每个位置上该项及其前 size - 1 项中最大的。",
    args(smalls, between(2, 3)),
)
def highest_near(items, size):
    result = []
    for i in range(len(items)):
        start = max(0, i - size + 1)
        result.append(max(items[start : i + 1]))
    return result


@reference(
    "True when span a lies inside span b; ends may be equal.",
    "区间 a 在区间 b 之内（端点可相同）时为 True。",
    args(_span, _span),
)
def span_inside(a, b):
    if a[0] < b[0]:
        return False
    return a[1] <= b[1]


@reference(
    "The span cut into spans of size; the last may be shorter.",
    "把 start 到 end 切成长为 size 的区间，最后一个可较短。",
    args(between(0, 5), between(4, 12), between(1, 4)),
)
def cut_span(start, end, size):
    result = []
    while start < end:
        result.append([start, min(start + size, end)])
        start += size
    return result


@reference(
    "The span moved down so that its end is not above limit; its length stays.",
    "把区间下移到终点不超过 limit，长度不变。",
    args(between(0, 6), between(7, 12), between(4, 12)),
)
def move_below(start, end, limit):
    over = end - limit
    if over > 0:
        start -= over
        end -= over
    return [start, end]


@reference(
    "A line of size points, with x where a span is; ends are left out.",
    "一行 size 个点，区间（不含终点）所在处为 x。",
    args(_spans, between(9, 11)),
)
def draw_spans(spans, size):
    line = ["."] * size
    for start, end in spans:
        for i in range(start, end):
            line[i] = "x"
    return "".join(line)


@reference(
    "The largest gap between the end of a span and the start of the next one, at least 0.",
    "某区间终点到下一区间起点的最大间隔，至少为 0。",
    args(listed(_span, 2, 4)),
)
def largest_span_gap(spans):
    best = 0
    for i in range(1, len(spans)):
        gap = spans[i][0] - spans[i - 1][1]
        best = max(best, gap)
    return best


@reference(
    "The spans in rising order, with those joined that share a place.",
    "按升序排列各区间，并合并有共同点的区间。",
    args(_spans),
)
def join_spans(spans):
    result = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1][1] = max(end, result[-1][1])
        else:
            result.append([start, end])
    return result


@reference(
    "The spans from 0 on that no span has, before the end of the last; spans stand in rising order.",
    "升序的各区间之间（从 0 起）没有被占的区间。",
    args(lambda rng: sorted(_spans(rng))),
)
def free_spans(spans):
    result = []
    free = 0
    for start, end in spans:
        if start > free:
            result.append([free, start])
        free = max(free, end)
    return result


@reference(
    "The most spans that share one place; ends are left out.",
    "同一处最多有几个区间，不含终点。",
    args(_spans),
)
def most_at_once(spans):
    best = 0
    for place, end in spans:
        total = 0
        for a, b in spans:
            if a <= place and place < b:
                total += 1
        best = max(best, total)
    return best


@reference(
    "How many spans one takes, in order, who takes each whose start is not before the end of the last taken one.",
    "依次选取起点不早于上一个所选终点的区间，共选几个。",
    args(_spans),
)
def count_taken(spans):
    total = 0
    free = 0
    for start, end in spans:
        if start >= free:
            total += 1
            free = end
    return total


@reference(
    "The length of the shortest window with a sum of at least goal, 0 when there is none.",
    "和不小于 goal 的最短连续段的长度，没有则为 0。",
    args(some_smalls, between(3, 9)),
)
def shortest_window(items, goal):
    best = 0
    for i in range(len(items)):
        total = 0
        for j in range(i, len(items)):
            total += items[j]
            size = j - i + 1
            if total >= goal and (best == 0 or size < best):
                best = size
    return best
