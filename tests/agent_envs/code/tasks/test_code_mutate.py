"""The operators of mutation: an example of each by hand, and what holds for all of them."""

from __future__ import annotations

import ast

import pytest

from agent_envs.code.tasks import mistakes
from agent_envs.code.tasks.catalogue import programs
from agent_envs.code.tasks.mutate import mutants
from agent_envs.code.tasks.settings import Operator

LOOP = """def pick(items, limit):
    total = 0
    for item in items:
        if item < limit and item:
            break
        total += item
    return total
"""


def found(source: str, operator: Operator) -> set[str]:
    """The lines that an operator gives; of a line taken out the number of lines that are left."""
    rows = source.splitlines()
    result = set()
    for mutant in mutants(source):
        if mutant.operator is operator:
            changed = mutant.apply(source).splitlines()
            odd = [new for old, new in zip(rows, changed, strict=False) if old != new]
            result.add(odd[0] if len(changed) == len(rows) else f"{len(changed)} lines")
    return result


@pytest.mark.parametrize(
    ("operator", "source", "expected"),
    [
        (Operator.BOUNDARY, LOOP, {"        if item <= limit and item:"}),
        (Operator.COMPARE, LOOP, {"        if item > limit and item:"}),
        (Operator.COMPARE, "x = 1 not in y\n", {"x = 1 in y"}),
        (Operator.ARITHMETIC, LOOP, {"        total -= item", "        total *= item"}),
        (Operator.ARITHMETIC, "def f(a, b):\n    return a // b\n", {"    return a % b", "    return a * b"}),
        (Operator.CONSTANT, "def f(n):\n    return g(n, 3)\n", {"    return g(n, 4)", "    return g(n, 2)"}),
        (Operator.CONSTANT, "if x == 0:\n    pass\n", {"if x == 1:"}),
        (Operator.INITIAL, LOOP, {"    total = 1"}),
        (Operator.INITIAL, 'a = ""\nb = []\nc = True\n', {'a = "-"', "b = [0]", "c = False"}),
        (Operator.NEGATE, LOOP, {"        if not (item < limit and item):"}),
        (Operator.NEGATE, "while not a:\n    pass\n", {"while a:"}),
        (Operator.NEGATE, "if a < b:\n    pass\n", {"if not a < b:"}),
        (Operator.LOGIC, LOOP, {"        if item < limit or item:"}),
        (Operator.LOGIC, "x = a or b or c\n", {"x = a and b or c", "x = a or b and c"}),
        (Operator.VARIABLE, "def f(a, b):\n    return g(a)\n", {"    return g(b)"}),
        (Operator.ARGUMENTS, "x = f(a, b, c)\n", {"x = f(b, a, c)"}),
        (Operator.ARGUMENTS, "x = a - b\n", {"x = b - a"}),
        (Operator.INDEX, "x = y[0]\n", {"x = y[1]", "x = y[-1]"}),
        (Operator.INDEX, "x = y[1:]\n", {"x = y[2:]", "x = y[0:]", "x = y[:]", "x = y[:1]"}),
        (Operator.INDEX, "x = y[:n]\n", {"x = y[:n + 1]", "x = y[:n - 1]", "x = y[:]", "x = y[n:]"}),
        (Operator.INDEX, "x = y[i - 1]\n", {"x = y[i]"}),
        (Operator.METHOD, "x = min(y.upper())\n", {"x = max(y.upper())", "x = min(y.lower())"}),
        (Operator.RETURN, "def f(a):\n    return True\n", {"    return False"}),
        (Operator.RETURN, "def f(a, b):\n    return a + b\n", {"    return a", "    return b"}),
        (Operator.RETURN, "def f(a, b):\n    if a:\n        return b\n    return -1\n",
         {"        return a", "        return", "    return 0"}),
        (Operator.REMOVE, "x = 1\ny = 2\n", {"1 lines"}),
        (Operator.REMOVE, "if x:\n    y = 2\n", {"    pass"}),
        (Operator.INDENT, LOOP, {"            total += item", "    total += item", "        return total"}),
        (Operator.JUMP, LOOP, {"            continue"}),
    ],
)  # fmt: skip
def test_operators_by_hand(operator: Operator, source: str, expected: set[str]) -> None:
    got = found(source, operator)
    assert (got == expected) if operator is not Operator.REMOVE else (expected <= got), got


def test_every_operator_is_there_and_has_an_example() -> None:
    assert list(mistakes.OPERATORS) == list(Operator)
    assert len(Operator) >= 10


@pytest.mark.parametrize("name", ["rotate", "merge", "Wallet", "edits", "best_column"])
def test_one_line_changes_and_all_else_stays(name: str) -> None:
    for source in programs()[name].files.values():
        before = source.splitlines(keepends=True)
        seen = {source}
        for mutant in mutants(source):
            changed = mutant.apply(source)
            after = changed.splitlines(keepends=True)
            at = mutant.line(source) - 1
            ast.parse(changed)
            assert changed not in seen
            seen.add(changed)
            left = len(before) - len(after)
            assert left in (0, 1) and before[:at] == after[:at] and before[at + 1 :] == after[at + 1 - left :]


def test_an_edit_that_gives_no_python_is_dropped() -> None:
    # Moved out of the loop, the jump would stand in none.
    source = "for a in b:\n    x = a\n    y = a\nelse:\n    pass\n"
    assert found(source, Operator.INDENT) == set()
    assert found(source.partition("else")[0], Operator.INDENT) == {"y = a"}


def test_it_depends_on_the_text_alone() -> None:
    assert mutants(LOOP) == mutants(LOOP) != mutants(LOOP.replace("total", "other"))


@pytest.mark.parametrize(
    "source", ["x = '动作'\n", "x = (\n", "x = 1\x0c\ny = 2\n", "x = 1\r\ny = 2\r\n", "(" * 300 + ")" * 300]
)
def test_texts_that_are_not_read_are_refused(source: str) -> None:
    with pytest.raises(SyntaxError):
        mutants(source)


def test_texts_of_others_are_survived() -> None:
    for source in (
        "",
        "x = f'{a + 1} {b[0]:>{c - 1}}'\n",
        "x = [\n    1,\n    2 +\n    3,\n]\nreturn_ = lambda a, b: a - b\n",
        "try:\n    x = 1\nexcept E:\n    x = 2\nfinally:\n    y = x\n",
        "match x:\n    case 1:\n        y = 1\n        z = 2\n",
        "async def f():\n    return await g(1)\n\n\n@d\nclass A(B):\n    x: int = 0\n",
        "if x:\n\ty = 1\n\tz = 2\n",
        "x = 1; y = 2\n",
    ):
        for mutant in mutants(source):
            ast.parse(mutant.apply(source))
    with pytest.raises((RecursionError, MemoryError)):
        mutants("-" * 50_000 + "1\n")
