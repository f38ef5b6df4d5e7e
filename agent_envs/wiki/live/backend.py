"""The live backend: any MediaWiki through its API.

Invariants: what a wiki sends is text of bounded size and never a path, an address or a query; a wiki that fails raises
`BackendUnavailable`, and never becomes an observation; a page that was read stays the same for the process.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from agent_envs.core import BackendUnavailable
from agent_envs.wiki import markup, store, tokens
from agent_envs.wiki.backend import Hit, Page
from agent_envs.wiki.live.site import Refused, Site
from agent_envs.wiki.places import Place
from agent_envs.wiki.spelling import LONGEST, alike, capitals, spellings

_FORBIDDEN = frozenset("|[]{}#<>")
_CANDIDATES = 50
_ENOUGH = 5
_SNIPPET = 300
_MOST_QUERY = 250
"""Bytes; Wikipedia refuses a query of more than 300."""
_MOST_TITLE = 255
"""Bytes of a page's title."""
_MOST_HITS = 5000
"""Wikipedia refuses to go beyond 10,000 results."""
_MARKS = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|''+")


class LiveBackend:
    """A wiki for each language, or one for all where the address names no language.

    The last part of a partition's name is its language. Connections are opened on first use and again in every process.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._sites: dict[str, _Reader] = {}
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, object]:
        return {"place": self.place, "_sites": {}, "_pid": 0}

    def _reader(self, partition: str) -> _Reader:
        if self._pid != os.getpid():
            self._sites, self._pid = {}, os.getpid()
        url = self.place.url(partition.rpartition("-")[2])
        if url not in self._sites:
            self._sites[url] = _Reader(Site(url, self.place))
        return self._sites[url]

    def prepare(self, partitions: Sequence[str]) -> None:
        """Asks each wiki once."""
        for partition in partitions:
            with self._reader(partition).question() as reader:
                reader.prepare()

    @property
    def fingerprint(self) -> str:
        """Hash of the address and of how pages are read; a live wiki may change under it."""
        return blake2b(f"live {self.place.url('')} {markup.VERSION}".encode(), digest_size=16).hexdigest()

    def resolve(self, title: str, partition: str) -> str | None:
        """The title of a page, also from a redirect or in other case, width or spacing; None: no such page."""
        if len(title) > LONGEST:
            return None
        with self._reader(partition).question() as reader:
            return reader.resolve(title)

    def page(self, title: str, partition: str) -> Page | None:
        """The page of exactly that title."""
        with self._reader(partition).question() as reader:
            page = reader.page(title)
            return page if page is not None and page.title == title else None

    def names(self, title: str, partition: str) -> Sequence[str]:
        """The redirects to a page, at most 500."""
        with self._reader(partition).question() as reader:
            return reader.names(title)

    def search(self, query: str, partition: str, k: int = 5, offset: int = 0) -> list[Hit]:
        """What the wiki's own search finds for the words of a query, in its order."""
        with self._reader(partition).question() as reader:
            return list(reader.search(query[:LONGEST], k, offset))

    def similar(self, title: str, partition: str, k: int = 5) -> list[str]:
        """Titles that begin like the given one, or are found by it, the most alike first."""
        with self._reader(partition).question() as reader:
            return list(reader.similar(title[:LONGEST], k))

    def random(self, rng: np.random.Generator, partition: str) -> str:
        """A title near a place in the alphabet that `rng` draws."""
        with self._reader(partition).question() as reader:
            return reader.random(rng)


def _words(text: str) -> str:
    """The words of a query, as many as a wiki takes."""
    kept = ""
    for word in tokens.words(text)[: tokens.MAX_TOKENS]:
        longer = f"{kept} {word}".lstrip()
        if len(longer.encode()) > _MOST_QUERY:
            break
        kept = longer
    return kept


def _unmarked(snippet: str) -> str:
    """A snippet without the marks of wikitext, which MediaWiki's own search leaves in."""
    return _MARKS.sub(r"\1", snippet)[:_SNIPPET].rstrip()


class _Reader:
    """The questions to one wiki, with caches over them. One thread at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self.page = lru_cache(8192)(self._page)
        self.resolve = lru_cache(16384)(self._resolve)
        self.search = lru_cache(4096)(self._search)
        self.near = lru_cache(4096)(self._near)

    def prepare(self) -> None:
        _ = self._site.namespaces

    @contextmanager
    def question(self) -> Iterator[_Reader]:
        with self._lock:
            self._site.begin()
            try:
                yield self
            except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
                # What came is JSON, but not what the API is documented to send.
                raise BackendUnavailable(
                    f"the wiki at {self._site.host} answers in an unknown format ({type(error).__name__})"
                ) from error

    def _asked(self, title: str) -> str | None:
        """A title in the form to ask for; None where no page can have it."""
        title = (markup.asked(title) or "").lstrip(": ")
        if not title or len(title.encode("utf-8", "replace")) > 255 or _FORBIDDEN & set(title):
            return None
        space, colon, _ = title.partition(":")
        return None if colon and tokens.fold(space) in self._site.namespaces else title

    def _resolve(self, title: str) -> str | None:
        asked = self._asked(title)
        if asked is None:
            return None
        page = self.page(asked)
        if page is None:
            other = self._respelt(asked)
            if other is None:  # perhaps with its capitals where only the wiki's own search looks
                folded = tokens.fold(asked)
                other = next((one for one in self.near(asked) if tokens.fold(one) == folded), None)
            page = None if other is None else self.page(other)
        return None if page is None else page.title

    def _respelt(self, title: str) -> str | None:
        """The first other spelling of a title that is one."""
        # Full-width signs have become the wiki's own, which would ask for several pages, and some letters many.
        others = [one for one in spellings(title) if not _FORBIDDEN & set(one) and len(one.encode()) <= _MOST_TITLE]
        if not others:
            return None
        key, kept = self._site.kept("spellings", of=others)
        if kept is None:
            answer = self._site.ask(action="query", titles="|".join(others)).get("query", {})
            changed = {one["from"]: one["to"] for one in answer.get("normalized", ())}
            there = {one["title"] for one in answer.get("pages", ()) if one.get("ns") == 0 and "pageid" in one}
            kept = [other for other in others if changed.get(other, other) in there][:1]
            self._site.cache.put(key, kept)
        return kept[0] if kept else None

    def _page(self, title: str) -> Page | None:
        asked = self._asked(title)
        if asked is None:
            return None
        key, kept = self._site.kept("page", title=asked)
        if kept is None:
            page, revision = self._read(asked)
            kept = [] if page is None else [store.dump(page).decode("ascii"), revision]
            self._site.cache.put(key, kept)
            if page is not None and page.title != asked:  # a redirect led there
                self._site.cache.put(self._site.kept("page", title=page.title)[0], kept)
        return store.load(kept[0].encode("ascii")) if kept else None

    def _read(self, title: str) -> tuple[Page | None, int]:
        """(page, its revision)"""
        wanted = {"redirects": 1, "disableeditsection": 1, "disabletoc": 1, "disablelimitreport": 1}
        try:
            answer = self._site.ask(action="parse", page=title, prop="text|links|revid", **wanted)["parse"]
        except Refused:
            return None, 0
        found = markup.plain(answer["title"])
        if self._asked(found) is None:  # a redirect out of the pages
            return None, 0
        there = {markup.plain(link["title"]) for link in answer["links"] if link["ns"] == 0 and link["exists"]}

        def link_of(attributes: Any) -> str | None:
            # A link to another wiki, or to a page that is not there, may have the title of one that is.
            other = {"new", "extiw", "external"} & set(attributes.get("class", "").split())
            target = markup.plain(attributes.get("title", ""))
            return target if target in there and not other else None

        lines = markup.lines_of(answer["text"], link_of)
        return Page(found, lines), int(answer.get("revid", 0))

    def names(self, title: str) -> Sequence[str]:
        asked = self._asked(title)
        if asked is None:
            return ()
        key, kept = self._site.kept("names", title=asked)
        if kept is None:
            how = {"prop": "redirects", "rdnamespace": 0, "rdlimit": 500, "rdprop": "title"}
            pages = self._site.ask(action="query", titles=asked, **how)["query"]["pages"]
            kept = [markup.plain(one["title"]) for page in pages for one in page.get("redirects", ())]
            self._site.cache.put(key, kept)
        return tuple(kept)

    def _search(self, query: str, k: int, offset: int) -> Sequence[Hit]:
        words = _words(query)
        if not words or offset + k > _MOST_HITS:
            return ()
        key, kept = self._site.kept("search", query=words, k=k, offset=offset)
        if kept is None:
            how = {"srwhat": "text", "srprop": "snippet", "srinfo": "", "srnamespace": 0}
            answer = self._site.ask(action="query", list="search", srsearch=words, srlimit=k, sroffset=offset, **how)
            found = answer["query"]["search"]
            kept = [[markup.plain(one["title"]), _unmarked(markup.text_of(one.get("snippet", "")))] for one in found]
            self._site.cache.put(key, kept)
        return tuple(Hit(title, snippet, 1 / (1 + offset + at)) for at, (title, snippet) in enumerate(kept))

    def similar(self, title: str, k: int) -> Sequence[str]:
        return alike(title, self.near(title), k)

    def _near(self, title: str) -> Sequence[str]:
        """Titles that may be meant by one that there is not."""
        words = _words(title)
        if not words:
            return ()
        key, kept = self._site.kept("similar", title=words)
        if kept is None:
            begin, longest = capitals(words), max(words.split(), key=len)
            found: dict[str, None] = {}
            # A letter may be wrong: what has the first half of the title or one of its words, or just begins like it.
            for prefix, word in ((begin, words), (begin[: max(1, len(words) // 2)], longest), (begin[:2], longest)):
                if len(found) < _ENOUGH:
                    found |= dict.fromkeys(self._beginning(prefix, word))
            kept = list(found)
            self._site.cache.put(key, kept)
        return tuple(kept)

    def _beginning(self, prefix: str, words: str) -> list[str]:
        """Titles that begin with one text, or are found by another."""
        how = {"srwhat": "text", "srprop": "", "srinfo": "", "srnamespace": 0, "psnamespace": 0}
        answer = self._site.ask(
            action="query", list="prefixsearch|search", pssearch=prefix, pslimit=_CANDIDATES, srsearch=words,
            srlimit=_CANDIDATES, **how,
        )["query"]  # fmt: skip
        return [markup.plain(one["title"]) for name in ("prefixsearch", "search") for one in answer.get(name, ())]

    def random(self, rng: np.random.Generator) -> str:
        start = "".join(chr(int(rng.integers(ord("A"), ord("Z") + 1))) for _ in range(2)).capitalize()
        how = {"aplimit": _CANDIDATES, "apnamespace": 0, "apfilterredir": "nonredirects"}
        for begin in (start, ""):
            pages = self._site.ask(action="query", list="allpages", apfrom=begin, **how)["query"]["allpages"]
            if pages:
                return markup.plain(pages[int(rng.integers(len(pages)))]["title"])
        raise BackendUnavailable(f"the wiki at {self._site.host} has no pages")
