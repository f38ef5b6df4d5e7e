"""What a wiki is made of, what a search in it finds, and what answers for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np


class Link(NamedTuple):
    """A link inside the text of a line. A tuple, as is `PageLine`: pages are made of many, and read all the time."""

    start: int
    """First character in the line's text."""
    end: int
    """One past the last character."""
    title: str
    """Title of the page it leads to."""


class PageLine(NamedTuple):
    """One line of a page: a fact, a sentence, a list item or a heading."""

    text: str
    links: tuple[Link, ...] = ()
    level: int = 0
    """0 for text; 1, 2 … for a heading."""


@dataclass(frozen=True)
class Page:
    """A page; line ids count from 1 and are stable under one `fingerprint`."""

    title: str
    lines: tuple[PageLine, ...]
    aliases: tuple[str, ...] = ()
    """Other titles that lead here (redirects, the title in another language)."""

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links of the page in reading order: link n of the page is `links[n - 1]`."""
        return tuple(link for line in self.lines for link in line.links)

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The lines as an agent sees them: ``[2] capital: {1:Tor Vin}``."""
        out, number = [], 0
        for at, line in enumerate(self.lines, 1):
            pieces, end = [], 0
            for link in line.links:
                number += 1
                pieces += [line.text[end : link.start], f"{{{number}:{line.text[link.start : link.end]}}}"]
                end = link.end
            mark = "#" * line.level + " " if line.level else ""
            out.append(f"[{at}] {mark}{''.join(pieces)}{line.text[end:]}")
        return tuple(out)


@dataclass(frozen=True)
class Hit:
    """One search result."""

    title: str
    snippet: str
    """The line of the page that holds most of the query."""
    score: float


class WikiBackend(Protocol):
    """What answers for one or many wikis ("partitions"), of which every question names one and never sees another.

    A title or query may be any text. A failure raises `BackendUnavailable`; it never becomes an answer.
    """

    def prepare(self, partitions: Sequence[str]) -> None:
        """Opens what these need, so that what is missing shows before an episode. Raises SettingsError."""

    @property
    def fingerprint(self) -> str:
        """Hash of what the answers come from."""

    def resolve(self, title: str, partition: str) -> str | None:
        """The true title of a page, also from an alias or in other case, width or spacing; None: no such page."""

    def page(self, title: str, partition: str) -> Page | None:
        """The page of exactly that title."""

    def names(self, title: str, partition: str) -> Sequence[str]:
        """Other titles that lead to the page of exactly that title, as far as the wiki can list them."""

    def search(self, query: str, partition: str, k: int = 5, offset: int = 0) -> list[Hit]:
        """Best pages for a query, best first."""

    def similar(self, title: str, partition: str, k: int = 5) -> list[str]:
        """Titles spelled most like the given one."""

    def random(self, rng: np.random.Generator, partition: str) -> str:
        """A title drawn by `rng`."""
