"""Which pages of a wiki are read to make questions of them: walks along its facts and links, from drawn pages.

Invariants: at most as many pages are read as were asked for; reading ends after a number of walks in a row that find
nothing new, so draws are bounded too; the same wiki, settings and seed give the same pages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.wiki.backend import Page, WikiBackend
from agent_envs.wiki.own.facts import Fact, facts_of, links_of, sayable
from agent_envs.wiki.tokens import fold

_IN_VAIN = 50
"""Walks in a row that find no new page, after which a wiki counts as read."""
_FAILURES = 5
"""Pages in a row that cannot be read, after which a wiki counts as down."""


@dataclass(frozen=True)
class Reading:
    """What is to be read."""

    pages: int
    """Most pages."""
    steps: int
    """Pages of one walk after its first."""
    starts: Sequence[str]
    """Titles that the first walks begin at. Where there are some, all others begin at links of what was read."""
    shown: Callable[[Page], int]
    """How many lines of a page an agent sees when it opens it."""


@dataclass(frozen=True)
class Read:
    """What is kept of a page."""

    facts: tuple[Fact, ...]
    links: Mapping[str, tuple[int, str]]
    """Title → (line id, text) of the first link to it, of the lines that are shown."""
    titles: frozenset[str]
    """Titles of all links of the page."""
    texts: frozenset[str]
    """Their folded texts."""


@dataclass
class Known:
    """What was read."""

    pages: dict[str, Read] = field(default_factory=dict)
    """By title, in the order of reading."""
    true: dict[str, str | None] = field(default_factory=dict)
    """Title as a link has it → the page's own; None where there is no page that can be used."""


class Walk:
    """A reading in progress."""

    def __init__(self, backend: WikiBackend, partition: str, reading: Reading, rng: np.random.Generator) -> None:
        self.known = Known()
        self._backend, self._partition, self._reading, self._rng = backend, partition, reading, rng
        self._links: list[str] = []
        self._failures = 0

    def run(self, on_page: Callable[[int], object] = lambda _: None) -> Known:
        """Reads; ``on_page`` gets the number of pages that were read. Raises SettingsError, BackendUnavailable."""
        pages, most = self.known.pages, self._reading.pages
        starts, in_vain = list(reversed(self._reading.starts)), 0
        while len(pages) < most and in_vain < _IN_VAIN:
            before, title = len(pages), starts.pop() if starts else self._draw()
            if title is None:
                break
            for left in reversed(range(self._reading.steps + 1)):
                true = None if title is None else self._read(title)
                on_page(len(pages))
                if true is None or not left or len(pages) == most:
                    break
                title = self._onward(pages[true])
            in_vain = in_vain + 1 if len(pages) == before else 0
        return self.known

    def _one_of(self, titles: Iterable[str]) -> str | None:
        """One that was not read."""
        left = [title for title in titles if title not in self.known.true]
        return left[int(self._rng.integers(len(left)))] if left else None

    def _draw(self) -> str | None:
        """Where the next walk begins; None where nothing is left."""
        if not self._reading.starts:
            return self._backend.random(self._rng, self._partition)
        while self._links:
            at = int(self._rng.integers(len(self._links)))
            self._links[at], self._links[-1] = self._links[-1], self._links[at]
            title = self._links.pop()
            if title not in self.known.true:
                return title
        return None

    def _onward(self, page: Read) -> str | None:
        """What a fact of a page leads to, or else a link of it."""
        return self._one_of(fact.target for fact in page.facts if fact.target) or self._one_of(page.links)

    def _read(self, title: str) -> str | None:
        """The true title of a page that is known from here on; None where there is none that can be used."""
        true = self.known.true
        if title not in true:
            true[title] = found = self._found(title)
            if found is not None:
                true[found] = found
        return true[title]

    def _found(self, title: str) -> str | None:
        known = self.known.pages
        try:
            true = self._backend.resolve(title, self._partition)
            page = None if true is None or true in known else self._backend.page(true, self._partition)
        except BackendUnavailable:
            self._failures += 1
            if self._failures == _FAILURES or title in self._reading.starts:
                raise
            return None
        self._failures = 0
        if title in self._reading.starts and true is None:
            raise SettingsError(f"wiki: there is no page {title!r} that the starts could name")
        if page is not None and sayable(page.title):
            known[page.title] = self._kept(page)
        return true if true in known else None

    def _kept(self, page: Page) -> Read:
        shown = self._reading.shown(page)
        links = links_of(page, shown)
        if self._reading.starts:
            self._links += links
        return Read(
            facts_of(page, shown),
            links,
            frozenset(link.title for link in page.links),
            frozenset(fold(line.text[link.start : link.end]) for line in page.lines for link in line.links),
        )
