"""Sums written out digit by digit, with what is carried: steps that can be read, checked, and learnt by a small model.

Invariant: without the mistake the last number of a written sum is its value; with it, it is another one.
"""

from collections.abc import Callable

APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "×": lambda a, b: a * b,
}


def columns(a: int, sign: str, b: int, *, forget: bool = False) -> tuple[list[str], int]:
    """(one sum for each digit, ones first; the value). ``forget`` leaves out whatever was carried or borrowed.

    ``b`` is at least 0, and × takes one digit. Below zero there are no columns: one sum says it all.
    """
    if a < 0 or (sign == "-" and a < b):
        return [f"{a} {sign} {b} = {APPLY[sign](a, b)}"], APPLY[sign](a, b)
    top, low = str(a)[::-1], str(b)[::-1]
    rows: list[str] = []
    digits: list[str] = []
    carried = 0
    for at in range(len(top) if sign == "×" else max(len(top), len(low))):
        x = int(top[at : at + 1] or 0)
        y = b if sign == "×" else int(low[at : at + 1] or 0)
        extra = 0 if forget else carried
        if sign == "-":
            carried = int(x - y - extra < 0)
            result = x + 10 * carried - y - extra
            rows.append(f"{x + 10 * carried} - {y}{f' - {extra}' if extra else ''} = {result}")
        else:
            result = (x * y if sign == "×" else x + y) + extra
            carried = result // 10
            rows.append(f"{x} {sign} {y}{f' + {extra}' if extra else ''} = {result}")
        digits.append(str(result % 10))
    if sign != "-" and carried:
        digits.append(str(carried))
    return rows, int("".join(reversed(digits)))


def carries(a: int, sign: str, b: int) -> bool:
    """Whether something is carried or borrowed that could be forgotten."""
    return columns(a, sign, b, forget=True)[1] != APPLY[sign](a, b)
