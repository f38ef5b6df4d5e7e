"""The bar of episodes that are played."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def evaluating(
    console: Console, total: int, completed: int = 0, doing: str = "evaluating"
) -> Iterator[Callable[[], None]]:
    """A bar of ``total`` episodes on a terminal, and nothing elsewhere; what it gives is called for each that ends."""
    with Progress(
        TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        yield partial(bar.advance, bar.add_task("", total=total, completed=completed))
