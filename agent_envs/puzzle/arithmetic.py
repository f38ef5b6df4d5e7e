"""Numbers that are combined in pairs until one is left, which must be the target: what game24 and countdown share.

Invariants: every number is used exactly once; results are exact and never negative (nothing is lost by that: whatever
can be reached with negative numbers in between can be reached without them, by turning differences around).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from random import Random

from agent_envs.actions import ActionError, Verb
from agent_envs.puzzle.protocol import Puzzle

Number = int | Fraction
_SIGNS = {"×": "*", "x": "*", "X": "*", "·": "*", "÷": "/", ":": "/", "−": "-"}
_LONGEST_NUMBER = 16


@dataclass(frozen=True)
class Numbers:
    """A board of numbers."""

    left: tuple[Number, ...]
    """What there is to combine, largest first."""
    target: int
    """What the last number must be."""


class Arithmetic(Puzzle[Numbers]):
    """Combine two numbers by + - * / until one is left.

    Level 1 can be done by + and - alone, level 2 needs one product or quotient, level 3 more.
    """

    verb = Verb("COMBINE", "a+b")
    whole: bool
    """Whether every division must come out even."""

    def show(self, board: Numbers) -> str:
        return f"numbers: {' '.join(map(str, board.left))}, target: {board.target}"

    def key(self, board: Numbers) -> str:
        return self.show(board)

    def moves(self, board: Numbers) -> Sequence[str]:
        return [text for text, _ in steps(board.left, self.whole)]

    def solved(self, board: Numbers) -> bool:
        return board.left == (board.target,)

    def distance(self, board: Numbers) -> int | None:
        return None if fewest_products(board.left, board.target, self.whole) is None else len(board.left) - 1

    def _play(self, board: Numbers, text: str) -> Numbers:
        a, sign, b = self._read(board, text)
        if sign == "-" and a < b:
            raise ActionError(f"{a}-{b} is negative: write {b}-{a}", f"{a}-{b} 是负数：请写 {b}-{a}")
        if sign == "/" and b == 0:
            raise ActionError("nothing can be divided by 0", "不能除以 0")
        if sign == "/" and self.whole and a % b:
            raise ActionError(f"{a}/{b} is not whole", f"{a}/{b} 不是整数")
        return Numbers(_rest(board.left, a, b, _apply(a, sign, b)), board.target)

    def _read(self, board: Numbers, text: str) -> tuple[Number, str, Number]:
        """The two numbers and the sign; raises `ActionError`."""
        text = "".join(_SIGNS.get(char, char) for char in text if not char.isspace())
        parts = [(_number(text[:at]), sign, _number(text[at + 1 :])) for at, sign in enumerate(text) if sign in "+-*/"]
        read = {(a, sign, b) for a, sign, b in parts if a is not None and b is not None}
        if not read:
            raise ActionError("a move is two numbers with + - * or / between them", "一步是两个数，中间是 + - * 或 /")
        there = {(a, sign, b) for a, sign, b in read if _holds(board.left, a, b)}
        if len(there) > 1:
            raise ActionError("put the fraction in parentheses", "请把分数放在括号里")
        if not there:
            a, _, b = min(read, key=str)
            numbers = " ".join(map(str, board.left))
            raise ActionError(
                f"{a} and {b} are not both left; left are {numbers}", f"{a} 和 {b} 不都在；还有 {numbers}"
            )
        return there.pop()

    def mistake(self, board: Numbers) -> str | None:
        """It adds where something else would have been right."""
        texts = self.moves(board)
        best = self.best(board)
        if best is None:
            return texts[0] if texts else None
        sums = [text for text in texts[: texts.index(best) + 1] if "+" in text]
        return None if sums[-1] == best else sums[-1]

    def words(self) -> Sequence[str]:
        return [str(number) for number in range(200)]

    def thought(self, board: Numbers, move: str) -> str:
        a, sign, b = self._read(board, move)
        return f"{move}={_apply(a, sign, b)}"


def hand(rng: Random, count: int, largest: int) -> tuple[int, ...]:
    """So many numbers from 1 to `largest`, the largest first."""
    return tuple(sorted((rng.randint(1, largest) for _ in range(count)), reverse=True))


def level_of(products: int) -> int:
    """The level of a puzzle whose simplest solution has this many multiplications and divisions."""
    return 1 + min(products, 2)


def fewest_products(left: tuple[Number, ...], target: int, whole: bool) -> int | None:
    """How many multiplications and divisions the simplest solution has; None when there is no solution."""
    if len(left) == 1:
        return 0 if left[0] == target else None
    if len(left) == 2:
        a, b = left
        if target in (a + b, a - b):
            return 0
        return 1 if a * b == target or a == b * target != 0 or (not whole and b == a * target != 0) else None
    return _searched(left, target, whole)


@lru_cache(maxsize=1 << 17)
def _searched(left: tuple[Number, ...], target: int, whole: bool) -> int | None:
    best: int | None = None
    for text, rest in steps(left, whole):
        result = fewest_products(rest, target, whole)
        if result is not None:
            result += "*" in text or text.count("/") > text.count("(")
            best = result if best is None else min(best, result)
            if best == 0:
                break
    return best


@lru_cache(maxsize=1 << 14)
def steps(left: tuple[Number, ...], whole: bool) -> tuple[tuple[str, tuple[Number, ...]], ...]:
    """Every move with what it leaves, each result of a pair of numbers once; the first pair first."""
    found: dict[str, tuple[Number, ...]] = {}
    for a, b in dict.fromkeys(combinations(left, 2)):
        for text, result in _results(a, b, whole):
            found.setdefault(text, _rest(left, a, b, result))
    return tuple(found.items())


def _results(a: Number, b: Number, whole: bool) -> Iterator[tuple[str, Number]]:
    """The moves of two numbers, a >= b."""
    first, second = _text(a), _text(b)
    yield f"{first}+{second}", a + b
    yield f"{first}-{second}", a - b
    yield f"{first}*{second}", a * b
    if b and not (whole and a % b):
        yield f"{first}/{second}", _apply(a, "/", b)
    if a != b and not whole:
        yield f"{second}/{first}", _apply(b, "/", a)


def _text(number: Number) -> str:
    return str(number) if number.denominator == 1 else f"({number})"


def _apply(a: Number, sign: str, b: Number) -> Number:
    if sign == "/":
        quotient = Fraction(a) / b
        return quotient.numerator if quotient.denominator == 1 else quotient
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _rest(left: tuple[Number, ...], a: Number, b: Number, result: Number) -> tuple[Number, ...]:
    rest = list(left)
    rest.remove(a)
    rest.remove(b)
    plain = result.numerator if result.denominator == 1 else result
    return tuple(sorted([*rest, plain], reverse=True))


def _holds(left: tuple[Number, ...], a: Number, b: Number) -> bool:
    return (left.count(a) > 1) if a == b else (a in left and b in left)


def _number(text: str) -> Number | None:
    """An integer or a fraction, in parentheses or not; None for anything else."""
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    above, slash, below = text.partition("/")
    digits = above + below
    if len(text) > _LONGEST_NUMBER or not (
        digits.isascii() and digits.isdecimal() and above and bool(below) == bool(slash)
    ):
        return None
    if not below:
        return int(above)
    return None if int(below) == 0 else _apply(int(above), "/", int(below))
