"""Tables on the console: numbers stay whole, however many columns there are."""

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from runners.reporting.tables import LEAST_WIDTH, show_table

TITLE, NUMBER = "who is right", "0.764 [0.742, 0.777]"
LINES = ("AUC of the advantage", "explained variance of V over the states in which an action was taken")


def shown(columns: int, width: int, words: Sequence[str] = LINES) -> str:
    """What a table of that many columns of numbers looks like."""
    out = io.StringIO()
    head = ["", *(f"selfac_{i}" for i in range(columns))]
    show_table(TITLE, head, [[one, *[NUMBER] * columns] for one in words], Console(file=out, width=width))
    return out.getvalue()


def whole(text: str) -> int:
    """Intervals that stand in one line."""
    return len(re.findall(r"\[0\.742, 0\.777\]", text))


@pytest.mark.parametrize("width", [80, LEAST_WIDTH, 200])
@pytest.mark.parametrize("columns", [1, 3, 16])
def test_no_number_is_cut(columns: int, width: int) -> None:
    text = shown(columns, width)
    assert whole(text) == 2 * columns, text
    assert all(re.search(rf"selfac_{i}\b", text) for i in range(columns))
    assert max(map(len, text.splitlines())) <= max(width, LEAST_WIDTH)
    parts = 1 + text.count("(continued)")
    assert parts == text.count("AUC"), "each part says what its lines are"
    assert (parts > 1) == (columns == 16)


def test_many_words_do_not_part_the_numbers() -> None:
    """They fold; only numbers cannot."""
    text = shown(2, 80, ["a long name of something that was measured " * 4])
    assert whole(text) == 2 and "(continued)" not in text


def test_a_table_without_numbers_is_a_table() -> None:
    assert TITLE in shown(0, 80) and "AUC of the advantage" in shown(0, 80)
    assert TITLE in shown(16, 80, ()), "or without lines"
