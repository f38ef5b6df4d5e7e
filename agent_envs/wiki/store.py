"""The files of a corpus: pages as JSON lines, folded titles, a sorted table of title hashes, and a tantivy index.

Invariants: page ids count from 0 in corpus order, a partition is a range of ids, document n of the index is page n. All
files are read-only after `write`; the big ones are mapped, so that processes share them through the page cache.
"""

import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import tantivy

from agent_envs.wiki import tokens
from agent_envs.wiki.backend import Link, Page, PageLine

PAGES, OFFSETS = "pages.jsonl", "offsets.npy"
TITLES, TITLE_OFFSETS = "titles.bin", "title_offsets.npy"
HASHES, OWNERS = "hashes.npy", "owners.npy"
META, INDEX = "meta.json", "index"
TITLE, BODY, GRAMS = "title", "body", "grams"
_HEAP = 512_000_000  # bytes the index writer may fill before it would start a second segment


def schema() -> Any:
    """Three fields of our own tokens, split at blanks by the engine; nothing is stored."""
    builder = tantivy.SchemaBuilder()
    for name in (TITLE, BODY):
        builder.add_text_field(name, stored=False, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field(GRAMS, stored=False, tokenizer_name="whitespace", index_option="basic")
    return builder.build()


def term(partition: int, token: str) -> str:
    """A token as it stands in the index: it carries its partition, so a query cannot see another one.

    Word statistics are then those of the partition too, and a query costs the same however many partitions there are.
    """
    return f"{partition}|{token}"


def title_hash(title: str, partition: str) -> int:
    """64 bits that stand for a folded title in a partition."""
    return int.from_bytes(
        blake2b(f"{partition}\0{tokens.fold(title)}".encode("utf-8", "replace"), digest_size=8).digest(), "big"
    )


def write(folder: Path, corpus: Iterable[tuple[str, Iterator[Page]]]) -> None:
    """Write all files of a corpus into an empty folder. Two pages of a partition must not share a folded title."""
    (folder / INDEX).mkdir()
    index = tantivy.Index(schema(), path=str(folder / INDEX))
    writer = index.writer(heap_size=_HEAP, num_threads=1)
    offsets, ends, partitions = [0], [0], {}
    titles: list[tuple[int, int]] = []
    aliases: list[tuple[int, int]] = []
    digest = blake2b(f"tokens {tokens.VERSION}".encode(), digest_size=16)
    with (folder / PAGES).open("wb") as out, (folder / TITLES).open("wb") as names:
        for part, (name, pages) in enumerate(corpus):
            first = len(offsets) - 1
            digest.update(name.encode())
            for page in pages:
                number = len(offsets) - 1
                titles.append((title_hash(page.title, name), number))
                aliases += [(title_hash(alias, name), number) for alias in page.aliases]
                data = dump(page)
                digest.update(data)
                out.write(data)
                offsets.append(offsets[-1] + len(data))
                ends.append(ends[-1] + names.write(tokens.fold(page.title).encode("utf-8", "surrogatepass")))
                writer.add_document(_document(part, page))
            partitions[name] = (part, first, len(offsets) - 1)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    segments = index.searcher().num_segments
    if segments > 1:
        raise RuntimeError(f"{len(offsets) - 1} pages made {segments} index segments; raise _HEAP in {__name__}")
    _write_titles(folder, titles, aliases)
    np.save(folder / OFFSETS, np.asarray(offsets, dtype=np.int64))
    np.save(folder / TITLE_OFFSETS, np.asarray(ends, dtype=np.int64))
    meta = {"fingerprint": digest.hexdigest(), "partitions": partitions}
    (folder / META).write_text(json.dumps(meta), encoding="utf-8")


def _document(part: int, page: Page) -> Any:
    document = tantivy.Document()
    body = [token for line in page.lines for token in tokens.tokenise(line.text)]
    prefix = term(part, "")
    for name, result in ((TITLE, tokens.tokenise(page.title)), (BODY, body), (GRAMS, tokens.grams(page.title))):
        document.add_text(name, prefix + f" {prefix}".join(result) if result else "")
    return document


def _write_titles(folder: Path, titles: list[tuple[int, int]], aliases: list[tuple[int, int]]) -> None:
    owner = dict(titles)
    if len(owner) < len(titles):
        raise ValueError("two pages of one partition have the same title once case and width are folded")
    for key, number in aliases:  # a title beats an alias, the first alias beats later ones
        owner.setdefault(key, number)
    keys = np.fromiter(owner, dtype=np.uint64, count=len(owner))
    order = np.argsort(keys)
    np.save(folder / HASHES, keys[order])
    np.save(folder / OWNERS, np.fromiter(owner.values(), dtype=np.int32, count=len(owner))[order])


def dump(page: Page) -> bytes:
    """A page as one JSON line; `load` is the way back."""
    lines = [
        [line.text, [[link.start, link.end, link.title] for link in line.links], line.level]
        if line.links or line.level
        else line.text
        for line in page.lines
    ]
    return _encode([page.title, page.aliases, lines]).encode() + b"\n"


_encode = json.JSONEncoder(separators=(",", ":")).encode
_parse = json.JSONDecoder().raw_decode  # half the time of json.loads, which also looks at encoding and blanks


def load(data: bytes) -> Page:
    """The page of one JSON line."""
    (title, aliases, rows), _ = _parse(str(data, "ascii"))
    line, link = PageLine._make, Link._make
    lines = [line((x, (), 0) if isinstance(x, str) else (x[0], tuple(map(link, x[1])), x[2])) for x in rows]
    return Page(title, tuple(lines), tuple(aliases))


def texts(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Title and texts of the lines of one JSON line: all that a list of search results needs of a page."""
    (title, _, rows), _ = _parse(str(data, "ascii"))
    return title, tuple([x if isinstance(x, str) else x[0] for x in rows])
