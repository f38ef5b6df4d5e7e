"""The offline backend: our own tokens in one read-only tantivy segment, similar titles re-ranked by edit distance.

Invariants: ties go to the lower page id; no text of an agent reaches a query parser; files are opened on first use and
again in every process, so the object pickles as its folder and survives a fork.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tantivy
from rapidfuzz import fuzz

from agent_envs.core import BackendUnavailable
from agent_envs.wiki import store, tokens
from agent_envs.wiki.backend import Hit, Page
from agent_envs.wiki.snippets import snippet
from agent_envs.wiki.spelling import LONGEST

_TITLE_WEIGHT = 2.0
_CANDIDATES = 60
_LOCK = ".tantivy-meta.lock"


class IndexBackend:
    """One or many wikis ("partitions") over the files that `store.write` made.

    Every question names the partition and never sees another. Results are deterministic. A failure raises
    `BackendUnavailable`; it never becomes an observation.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._files: _Files | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder, "_files": None}

    @property
    def _open(self) -> _Files:
        if self._files is None or self._files.pid != os.getpid():
            try:
                self._files = _Files(self.folder)
            except (OSError, ValueError) as error:
                raise BackendUnavailable(f"cannot open the wiki at {self.folder}: {error}") from error
        return self._files

    def prepare(self, partitions: Sequence[str]) -> None:
        _ = self._open

    @property
    def fingerprint(self) -> str:
        """Hash of the corpus and of the tokeniser: equal fingerprints answer every question alike."""
        return self._open.fingerprint

    def partitions(self) -> list[str]:
        """Names of all partitions, in corpus order."""
        return list(self._open.partitions)

    def resolve(self, title: str, partition: str) -> str | None:
        """The true title of a page, also from an alias or in other case, width or spacing; None: no such page."""
        if len(title) > LONGEST:
            return None
        number = self._open.number(title, partition)
        return None if number is None else self._open.page(number).title

    def page(self, title: str, partition: str) -> Page | None:
        """The page of exactly that title."""
        number = self._open.number(title, partition)
        if number is None:
            return None
        page = self._open.page(number)
        return page if page.title == title else None

    def names(self, title: str, partition: str) -> Sequence[str]:
        """The aliases of the page."""
        page = self.page(title, partition)
        return () if page is None else page.aliases

    def search(self, query: str, partition: str, k: int = 5, offset: int = 0) -> list[Hit]:
        """Best pages for a query, best first, ties by page number."""
        return list(self._open.search(query[:LONGEST], partition, k, offset))

    def similar(self, title: str, partition: str, k: int = 5) -> list[str]:
        """Titles spelled most like the given one."""
        return list(self._open.similar(title[:LONGEST], partition, k))

    def random(self, rng: np.random.Generator, partition: str) -> str:
        """A title drawn by `rng`."""
        part = self._open.partition(partition)
        return self._open.page(int(rng.integers(part.first, part.end))).title


@dataclass(frozen=True)
class _Partition:
    number: int
    first: int
    end: int


class _Files:
    """The open files of one process, with caches over them."""

    def __init__(self, folder: Path) -> None:
        self.pid = os.getpid()
        meta = json.loads((folder / store.META).read_text(encoding="utf-8"))
        self.fingerprint: str = meta["fingerprint"]
        self.partitions = {name: _Partition(*row) for name, row in meta["partitions"].items()}
        self._offsets = _array(folder / store.OFFSETS).data  # gives plain ints, and faster than an array
        self._hashes = _array(folder / store.HASHES)
        self._owners = _array(folder / store.OWNERS)
        self._title_offsets = _array(folder / store.TITLE_OFFSETS).data
        self._pages, self._titles = _mapped(folder / store.PAGES), _mapped(folder / store.TITLES)
        self._schema = store.schema()
        self._searcher = _searcher(folder / store.INDEX, self._schema)
        # Groups of episodes on one task repeat their requests; all results are immutable.
        self.page = lru_cache(8192)(self._page)
        # Most pages are only ever found: a tuple of texts is a tenth of a page, and no work for the garbage collector.
        self.texts = lru_cache(16384)(self._texts)
        self.number = lru_cache(16384)(self._number)
        self.search = lru_cache(4096)(self._search)
        self.similar = lru_cache(4096)(self._similar)

    def partition(self, name: str) -> _Partition:
        try:
            return self.partitions[name]
        except KeyError:
            raise BackendUnavailable(f"the wiki has no partition {name!r}") from None

    def _page(self, number: int) -> Page:
        return store.load(self._pages[self._offsets[number] : self._offsets[number + 1]])

    def _texts(self, number: int) -> tuple[str, tuple[str, ...]]:
        return store.texts(self._pages[self._offsets[number] : self._offsets[number + 1]])

    def _number(self, title: str, partition: str) -> int | None:
        key = np.uint64(store.title_hash(title, partition))
        at = int(self._hashes.searchsorted(key))
        if at == len(self._hashes) or self._hashes[at] != key:
            return None
        number, folded = int(self._owners[at]), tokens.fold(title)
        page = self.page(number)
        return number if any(tokens.fold(name) == folded for name in (page.title, *page.aliases)) else None

    def _term(self, field: str, token: str, weight: float) -> tuple[object, object]:
        query = tantivy.Query.term_query(
            self._schema, field, token, index_option="freq" if field != store.GRAMS else "basic"
        )
        return tantivy.Occur.Should, query if weight == 1 else tantivy.Query.boost_query(query, weight)

    def _top(self, clauses: list[tuple[object, object]], k: int, offset: int = 0) -> list[tuple[float, int]]:
        """(score, page id), best first; equal scores in page order, also across the cut."""
        if not clauses:
            return []
        hits = self._searcher.search(tantivy.Query.boolean_query(clauses), limit=k, offset=offset, count=False).hits
        return [(score, address.doc) for score, address in hits]

    def _search(self, query: str, partition: str, k: int, offset: int) -> tuple[Hit, ...]:
        part = self.partition(partition).number
        words = list(dict.fromkeys(tokens.tokenise(query)))[: tokens.MAX_TOKENS]
        clauses = []
        for word in words:
            token = store.term(part, word)
            clauses += [self._term(store.TITLE, token, _TITLE_WEIGHT), self._term(store.BODY, token, 1)]
        return tuple(
            Hit(title, snippet(lines, words), score)
            for score, number in self._top(clauses, k, offset)
            for title, lines in (self.texts(number),)
        )

    def _similar(self, title: str, partition: str, k: int) -> tuple[str, ...]:
        part = self.partition(partition).number
        clauses = [self._term(store.GRAMS, store.term(part, gram), 1) for gram in tokens.grams(title)[:64]]
        folded = tokens.fold(title)[:128]
        ranked = sorted(
            (-fuzz.ratio(folded, self._folded_title(number)), number) for _, number in self._top(clauses, _CANDIDATES)
        )
        return tuple(self.texts(number)[0] for _, number in ranked[:k])

    def _folded_title(self, number: int) -> str:
        at = self._title_offsets
        return self._titles[at[number] : at[number + 1]].decode("utf-8", "surrogatepass")


def _searcher(folder: Path, schema: Any) -> Any:
    """A searcher over the index files. The engine wants to write a lock beside them even to read.

    Where that is forbidden (a cache owned by someone else) it opens a folder of symbolic links, which may go as soon as
    the files are mapped.
    """
    if os.access(folder / _LOCK, os.W_OK):
        return _reader(folder, schema)
    with TemporaryDirectory(prefix="turnwise-index-") as shadow:
        for path in folder.iterdir():
            if path.suffix != ".lock":
                Path(shadow, path.name).symlink_to(path)
        return _reader(Path(shadow), schema)


def _reader(folder: Path, schema: Any) -> Any:
    index = tantivy.Index(schema, path=str(folder))
    index.config_reader("manual", 0)  # the files never change: watch nothing
    return index.searcher()


def _array(path: Path) -> np.ndarray:
    """A mapped array as a plain one: slicing `np.memmap` itself is several times slower."""
    return np.asarray(np.load(path, mmap_mode="r"))


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
