"""Tables of text cells: on the console, in Markdown and as CSV."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from runners.statistics.intervals import Interval

NONE = "–"
"""A cell without a value."""
LEAST_WIDTH = 120
"""Characters that a wide table needs: numbers cut at the end of a line are useless."""


def cell(value: Interval | None, form: str = ".3f", *, sign: bool = False) -> str:
    """``mean [low, high]``, each in ``form``; a dash for None."""
    if value is None:
        return NONE
    form = f"+{form}" if sign else form
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def show_table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], console: Console, *, text: int = 1
) -> None:
    """Prints a table whose first ``text`` columns are words; an interval stands below its mean."""
    if len(head) > 6 and console.width < LEAST_WIDTH:
        console = Console(file=console.file, width=LEAST_WIDTH)
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(re.sub(r" \[(.*)\]$", r"\n[dim]\\[\1][/]", one) for one in row))
    console.print(table)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are Markdown in one line."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
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
