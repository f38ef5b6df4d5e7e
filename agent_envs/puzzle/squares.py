"""Squares of a board as text: ``r2c3`` is row 2, column 3, counted from 1 at the upper left."""


def name(row: int, column: int) -> str:
    """The text of a square whose row and column are counted from 0."""
    return f"r{row + 1}c{column + 1}"


def read(text: str, side: int) -> tuple[int, int] | None:
    """Row and column, from 0, of a square on a board of that side; None when the text names none."""
    row, result, column = text.strip().casefold().removeprefix("r").partition("c")
    if not result:
        return None
    at = [_digit(part.strip(), side) for part in (row, column)]
    return None if at[0] is None or at[1] is None else (at[0], at[1])


def _digit(text: str, side: int) -> int | None:
    number = int(text) if len(text) == 1 and text.isascii() and text.isdecimal() else 0
    return number - 1 if 1 <= number <= side else None
