"""Squares of a board: row and column, counted from 0 at the upper left. As text ``r2c3`` is row 2, column 3, from 1."""

Cell = tuple[int, int]


def name(row: int, column: int) -> str:
    """The text of a square."""
    return f"r{row + 1}c{column + 1}"


def turned(cell: Cell, side: int, way: int) -> Cell:
    """Where a square lies in one of the eight pictures (``way``) that mirrors and quarter turns make of a board."""
    row, column = (cell[1], cell[0]) if way & 4 else cell
    return (side - 1 - row if way & 1 else row, side - 1 - column if way & 2 else column)


def read(text: str, side: int) -> Cell | None:
    """The square on a board of that side; None when the text names none."""
    row, result, column = text.strip().casefold().removeprefix("r").partition("c")
    if not result:
        return None
    at = [_digit(part.strip(), side) for part in (row, column)]
    return None if at[0] is None or at[1] is None else (at[0], at[1])


def _digit(text: str, side: int) -> int | None:
    number = int(text) if len(text) == 1 and text.isascii() and text.isdecimal() else 0
    return number - 1 if 1 <= number <= side else None
