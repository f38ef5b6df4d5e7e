"""Tables of text cells: on the console, in Markdown and as CSV."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from runners.statistics.intervals import Interval

NONE = "–"
"""A cell without a value."""
LEAST_WIDTH = 120
"""Characters that a wide table needs: numbers cut at the end of a line are useless."""
FRAME = 3
"""Characters around a cell: two of padding, one line."""
LONG_HEAD = 16
"""Characters of a head's word that a tight table leaves whole."""
BEFORE_INTERVAL = r" (?=\[.*\]$)"
"""Where a number may be broken."""


def cell(value: Interval | None, form: str = ".3f", *, sign: bool = False) -> str:
    """``mean [low, high]``, each in ``form``; a dash for None."""
    if value is None:
        return NONE
    form = f"+{form}" if sign else form
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def show_table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], console: Console, *, text: int = 1
) -> None:
    """Prints a table whose first ``text`` columns are words; an interval stands below its mean.

    One that is too wide is printed in parts, which all have the words.
    """
    if len(head) > 6 and console.width < LEAST_WIDTH:
        console = Console(file=console.file, width=LEAST_WIDTH)
    columns = list(zip(head, *rows, strict=True))
    for part in _parts(columns, text, console.width):
        table = Table(title=title, title_justify="left")
        tight = 1 + sum(FRAME + _longest(column, BEFORE_INTERVAL) for column in part) > console.width
        for i, column in enumerate(part):
            number = i >= text
            width = _width(column, number=True) if number and tight else None
            table.add_column(column[0], justify="right" if number else "left", overflow="fold", width=width)
        for row in list(zip(*part, strict=True))[1:]:
            table.add_row(*map(_stacked, row))
        console.print(table)
        title = "… (continued)"


def _parts(columns: Sequence[Sequence[str]], text: int, width: int) -> Iterator[Sequence[Sequence[str]]]:
    """The columns that stand side by side in ``width`` characters without a number being cut, after those of words."""
    words = columns[:text]
    parts: list[list[Sequence[str]]] = [[]]
    used = begun = 1 + sum(FRAME + _width(one, number=False) for one in words)
    for column in columns[text:]:
        own = FRAME + _width(column, number=True)
        if parts[-1] and used + own > width:
            parts.append([])
            used = begun
        parts[-1].append(column)
        used += own
    return ([*words, *part] for part in parts)


def _stacked(text: str) -> str:
    """A cell with its interval below."""
    mean, *interval = re.split(BEFORE_INTERVAL, text)
    return "\n".join([mean, *(f"[dim]\\{one}[/]" for one in interval)])


def _width(column: Sequence[str], *, number: bool) -> int:
    """Characters that a column needs: words may be broken at spaces, numbers before their interval alone, and a head of
    more than `LONG_HEAD` characters anywhere."""
    least = min(LONG_HEAD, _longest(column[:1], r"\s"))
    return max(least, _longest(column[1:], BEFORE_INTERVAL if number else r"\s"))


def _longest(cells: Sequence[str], breaks: str) -> int:
    """Characters of the longest part of the cells, which are broken there."""
    return max((cell_len(part) for one in cells for part in re.split(breaks, one)), default=0)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1) -> str:
    """A Markdown table whose first ``text`` columns are words; cells are Markdown in one line."""
    lines = [head, ["---:" if i >= text else "---" for i, _ in enumerate(head)], *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("\n", " ") for line in lines)


def literal(text: str) -> str:
    """``text`` with what Markdown or HTML would take for markup escaped."""
    return re.sub(r"([\\`*_\[\]<>&!|~#])", r"\\\1", text)


def write_csv(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a CSV file whose columns are the keys of all rows. Raises OSError."""
    rows = list(rows)
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)), restval="")
        table.writeheader()
        table.writerows(rows)
