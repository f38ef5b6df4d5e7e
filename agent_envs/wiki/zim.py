"""The ZIM backend: a file of Kiwix, read by libzim (GPL-3.0-or-later, an extra that nothing else here needs).

Invariants: what a file holds is text of bounded size and never a path outside it, an address or a query; the file is
opened on first use and again in every process, and is read by one thread at a time, as libzim asks for.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from hashlib import blake2b
from html import unescape
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import numpy as np

from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.wiki import markup, tokens
from agent_envs.wiki.backend import Hit, Page
from agent_envs.wiki.places import Place
from agent_envs.wiki.snippets import snippet
from agent_envs.wiki.spelling import LONGEST, alike, capitals, spellings

_MOST_BYTES = 8 << 20
_MOST_REDIRECTS = 5
_CANDIDATES = 50
_DRAWS = 10_000
_MOST_SCANNED = 1_000_000
_REFRESH = re.compile(r"<meta\s[^>]{0,200}http-equiv=[\"']?refresh[^>]{0,200}url=([^\"'>]{1,1000})", re.IGNORECASE)


class ZimBackend:
    """One wiki for all partitions."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._file: _File | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"place": self.place, "_file": None}

    @contextmanager
    def _reading(self) -> Iterator[_File]:
        if self._file is None or self._file.pid != os.getpid():
            self._file = _File(self.place)
        with self._file.lock:
            try:
                yield self._file
            except (RuntimeError, OSError) as error:
                if isinstance(error, BackendUnavailable):
                    raise
                raise BackendUnavailable(f"{self.place.path} cannot be read: {str(error)[:200]}") from error

    def prepare(self, partitions: Sequence[str]) -> None:
        with self._reading():
            pass

    @property
    def fingerprint(self) -> str:
        """Hash of the file's own name for itself and of how pages are read."""
        with self._reading() as file:
            return blake2b(f"zim {file.name} {markup.VERSION}".encode(), digest_size=16).hexdigest()

    def resolve(self, title: str, partition: str) -> str | None:
        """The title of a page, also from a redirect or in other case, width or spacing; None: no such page."""
        with self._reading() as file:
            return None if len(title) > LONGEST else file.resolve(title)

    def page(self, title: str, partition: str) -> Page | None:
        """The page of exactly that title."""
        with self._reading() as file:
            return file.page(title) if file.resolve(title) == title else None

    def names(self, title: str, partition: str) -> Sequence[str]:
        """The redirects to a page; none in a file of more than a million entries, which would all have to be read."""
        with self._reading() as file:
            return file.redirects.get(title, ())

    def search(self, query: str, partition: str, k: int = 5, offset: int = 0) -> list[Hit]:
        """What the file's own index finds for the words of a query, in its order."""
        with self._reading() as file:
            return list(file.search(query[:LONGEST], k, offset))

    def similar(self, title: str, partition: str, k: int = 5) -> list[str]:
        """Titles that the file suggests for the given one or its beginnings, the most alike first."""
        with self._reading() as file:
            return list(alike(title[:LONGEST], file.near(title[:LONGEST]), k))

    def random(self, rng: np.random.Generator, partition: str) -> str:
        """A title drawn by `rng`."""
        with self._reading() as file:
            return file.random(rng)


class _File:
    """An open file of one process, with caches over it."""

    def __init__(self, place: Place) -> None:
        try:
            from libzim.reader import Archive
            from libzim.search import Query, Searcher
            from libzim.suggestion import SuggestionSearcher
        except ImportError as error:
            raise SettingsError("--wiki.backend zim needs libzim: pip install 'turnwise[zim]'") from error
        self.pid, self.lock = os.getpid(), threading.Lock()
        try:
            self._archive = Archive(place.file)
        except (RuntimeError, OSError) as error:
            raise SettingsError(f"--wiki.path {place.path} is not a file of ZIM ({str(error)[:200]})") from error
        if not self._archive.has_fulltext_index:
            raise SettingsError(f"--wiki.path {place.path} has no full-text index, which SEARCH needs")
        self.name = str(self._archive.uuid)
        self._query, self._searcher = Query, Searcher(self._archive)
        self._suggester = SuggestionSearcher(self._archive)
        self.page: Callable[[str], Page] = lru_cache(2048)(self._page)
        self.resolve = lru_cache(16384)(self._resolve)
        self.search = lru_cache(4096)(self._search)
        self.near = lru_cache(4096)(self._near)

    def _entry(self, title: str) -> Any:
        """The HTML entry of a title, redirects followed; None: there is none."""
        archive = self._archive
        if archive.has_entry_by_title(title):
            return self._followed(archive.get_entry_by_title(title))
        path = title.replace(" ", "_")
        return self._followed(archive.get_entry_by_path(path)) if archive.has_entry_by_path(path) else None

    def _followed(self, entry: Any) -> Any:
        """Where an entry leads, None when it is no page."""
        for _ in range(_MOST_REDIRECTS):
            if entry.is_redirect:
                entry = entry.get_redirect_entry()
                continue
            item = entry.get_item()
            if not item.mimetype.startswith("text/html"):
                return None
            elsewhere = _REFRESH.search(bytes(item.content[:4096]).decode("utf-8", "replace"))
            target = self._inside(entry.path, unescape(elsewhere[1])) if elsewhere else None
            if target is None:
                return entry
            entry = target
        return None

    def _inside(self, path: str, href: str) -> Any:
        """The entry that a link on a page leads to; None where it leads out of the file or to nothing."""
        try:
            parts = urlsplit(href)
            if parts.scheme or parts.netloc or not parts.path:
                return None
            target = unquote(urljoin(f"/{path}", parts.path)).lstrip("/")
        except ValueError:
            return None
        return self._archive.get_entry_by_path(target) if self._archive.has_entry_by_path(target) else None

    def _resolve(self, title: str) -> str | None:
        title = markup.asked(title) or ""
        if not title:
            return None
        for form in (title, *spellings(title)):
            entry = self._entry(form)
            if entry is not None:
                return _title(entry)
        folded = tokens.fold(title)
        return next((one for one in self.near(title) if tokens.fold(one) == folded), None)

    def _page(self, title: str) -> Page:
        entry = self._entry(title)
        item = entry.get_item()
        if item.size > _MOST_BYTES:
            raise BackendUnavailable(f"the page {title!r} is larger than {_MOST_BYTES >> 20} MiB")

        def link_of(attributes: Mapping[str, str]) -> str | None:
            found = self._inside(entry.path, attributes.get("href", ""))
            target = None if found is None else self._followed(found)
            return None if target is None else _title(target)

        lines = markup.lines_of(bytes(item.content).decode("utf-8", "replace"), link_of)
        # The file of a page repeats its title above the text.
        own = bool(lines) and lines[0].level == 1 and tokens.fold(lines[0].text) == tokens.fold(title)
        return Page(title, lines[1:] if own else lines)

    def _search(self, query: str, k: int, offset: int) -> Sequence[Hit]:
        words = tokens.words(query)[: tokens.MAX_TOKENS]
        if not words:
            return ()
        found = self._searcher.search(self._query().set_query(" ".join(words))).getResults(offset, k)
        hits = []
        for at, path in enumerate(found):
            entry = self._followed(self._archive.get_entry_by_path(path))
            if entry is not None:
                title, wanted = _title(entry), tokens.tokenise(query)
                text = snippet([line.text for line in self.page(title).lines], wanted)
                hits.append(Hit(title, text, 1 / (1 + offset + at)))
        return tuple(hits)

    @cached_property
    def redirects(self) -> Mapping[str, Sequence[str]]:
        """Title of a page → the titles that are redirected to it."""
        found: dict[str, list[str]] = {}
        count = self._archive.all_entry_count
        for entry in map(self._archive._get_entry_by_id, range(count if count <= _MOST_SCANNED else 0)):
            target = self._followed(entry) if entry.is_redirect else None
            if target is not None and _title(target) != _title(entry):
                found.setdefault(_title(target), []).append(_title(entry))
        return found

    def _near(self, title: str) -> Sequence[str]:
        """Titles that may be meant by one that there is not."""
        words = tokens.words(title)[: tokens.MAX_TOKENS]
        whole = " ".join(words)
        found: dict[str, None] = {}
        # What is suggested begins with what is asked for, so a wrong letter must lie behind it.
        for text in (whole, *words, capitals(whole)[: max(1, len(whole) // 2)], whole[:2]) if words else ():
            if len(found) < _CANDIDATES:
                paths = list(self._suggester.suggest(text).getResults(0, _CANDIDATES))
                entries = (self._followed(self._archive.get_entry_by_path(path)) for path in paths)
                found |= dict.fromkeys(_title(entry) for entry in entries if entry is not None)
        return tuple(found)

    def random(self, rng: np.random.Generator) -> str:
        for _ in range(_DRAWS):
            entry = self._archive._get_entry_by_id(int(rng.integers(self._archive.all_entry_count)))
            if (
                not entry.is_redirect
                and self._archive.has_entry_by_path(entry.path)
                and self._followed(entry) is not None
            ):
                return _title(entry)
        raise BackendUnavailable("the file of ZIM has hardly any pages")


def _title(entry: Any) -> str:
    return markup.plain(entry.title or entry.path)
