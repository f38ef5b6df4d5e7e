"""The HTML of a wiki page as numbered lines: a heading, a sentence, a list item or a row of a table each.

Invariants: whatever the HTML holds, the result is bounded in lines and characters and free of control characters, and
a page that was cut says so in its last line; a link is never cut in two; the same HTML gives the same lines. `VERSION`
belongs to every cache and fingerprint: raise it with any change here that changes a line.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from agent_envs.core import SettingsError
from agent_envs.wiki.backend import Link, PageLine

VERSION = 1
MOST_LINES = 5000
"""Lines of a page."""
MOST_CHARS = 400
"""Characters of a line; a longer one is cut at a blank."""
MOST_PARAGRAPH = 20_000
"""Characters of a paragraph; the rest is left out."""

LinkOf = Callable[[Mapping[str, str]], str | None]
"""Attributes of an ``<a>`` → title of the page of this wiki that it leads to; None: plain text."""

# What would break a line, forge a blank or turn the direction of a text; unpaired surrogates can be in no file.
_UNSEEN = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_BLANKS = re.compile(r"[\s\x1c-\x1f\x85\u2028\u2029]+")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = (
    "address article aside blockquote body br caption center dd details div dl dt figcaption figure footer header hr"
    " html li main nav ol p pre section summary table tbody tfoot thead tr ul"
)
_CELLS = "td th"
_SKIPPED_TAGS = (
    "audio button form head iframe input math noscript object script select style svg template textarea video"
)
_SKIPPED_CLASSES = (
    "authority-control ambox catlinks metadata mw-cite-backlink mw-editsection mw-empty-elt mw-jump-link navbox"
    " noprint printfooter reference references reflist sidebar sistersitebox toc vertical-navbox"
)
_BREAKING = frozenset(_BLOCKS.split()) | set(_HEADINGS)
_IN_ROWS = frozenset(_CELLS.split())
_SILENT = frozenset(_SKIPPED_TAGS.split())
_ASIDE = frozenset(_SKIPPED_CLASSES.split())
_END = re.compile(r"[.!?][\"')\]”’»]*\s+(?=[^\s\Wa-z]|[\"'“(\[«])|[。！？；][”’」』）]*(?=.)")
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:\w|\w\.\w|al|approx|b|c|ca|cf|co|corp|d|dr|e\.g|ed|est|fl|gen|i\.e|inc|jr|lt|ltd|mr|mrs|ms|mt|no"
    r"|prof|rev|sr|st|v|vol|vs)$",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """One line of text: white space collapsed, without control characters."""
    return _BLANKS.sub(" ", _UNSEEN.sub("", text)).strip()


def asked(title: str) -> str | None:
    """A title that somebody asks for, as a page could have it; None where none can."""
    spaced = " ".join(title.replace("_", " ").split())
    return spaced if spaced and plain(spaced) == spaced else None


def text_of(html: str) -> str:
    """All text of a piece of HTML in one line."""
    return " ".join(line.text for line in lines_of(html, lambda _: None))


def lines_of(html: str, link_of: LinkOf) -> tuple[PageLine, ...]:
    """The lines of a page or a part of one."""
    lines = _Lines(link_of)
    for _ in _walk(html, lines):
        if len(lines.done) > MOST_LINES:
            return (*lines.done[:MOST_LINES], PageLine(f"(cut after {MOST_LINES} lines)"))
    return tuple(lines.done)


class _Lines:
    """Lines that are done, and the one that is being written."""

    def __init__(self, link_of: LinkOf) -> None:
        self.done: list[PageLine] = []
        self.level = self.cells = 0
        self._link_of = link_of
        self._text = ""
        self._links: list[Link] = []
        self._target: str | None = None
        self._begun = 0
        self._parted = False

    def add(self, text: str | None) -> None:
        if len(self._text) >= MOST_PARAGRAPH:
            return
        text = _BLANKS.sub(" ", _UNSEEN.sub("", text or ""))[:MOST_PARAGRAPH]
        self._parted = self._parted and not text.strip()
        self._text += text.lstrip() if not self._text or self._text.endswith(" ") else text

    def open_link(self, attributes: Mapping[str, str]) -> None:
        self._begun, self._target = len(self._text), self._link_of(attributes)

    def close_link(self) -> None:
        start, end = self._begun, len(self._text.rstrip())
        start += len(self._text[start:end]) - len(self._text[start:end].lstrip())
        if self._target is not None and start < end:
            self._links.append(Link(start, end, self._target))
        self._begun, self._target = len(self._text), None

    def part(self, mark: str) -> None:
        """The end of one part of a line and the beginning of the next: ``name: value; value``."""
        self._text = self._text.rstrip()
        if self._text and not self._text.endswith((":", ";", "|")):
            self._text += mark
        self._text += " " if self._text else ""
        self._parted = bool(self._text)

    def end(self) -> None:
        """The line is complete."""
        target = self._target
        self.close_link()
        text = self._text.rstrip()
        text = text[:-1].rstrip() if self._parted and text.endswith((";", "|")) else text
        if text:
            self.done += (
                _cut(text, self._links) if not self.level else [_piece(text, self._links, 0, len(text), self.level)]
            )
        self._text, self._links, self._begun, self._target, self._parted = "", [], 0, target, False


def _walk(html: str, lines: _Lines) -> Iterator[None]:
    """Writes the lines; yields after every element."""
    try:
        from lxml import etree
        from lxml import html as markup
    except ImportError as error:
        raise SettingsError("pages in HTML need lxml: pip install 'turnwise[wikipedia]' or 'turnwise[zim]'") from error
    parser = markup.HTMLParser(remove_comments=True, remove_pis=True, encoding="utf-8")
    data = f"<html><body>{html}</body></html>" if "<body" not in html[:4000] else html
    try:
        root = markup.document_fromstring(data.encode("utf-8", "ignore"), parser=parser)
    except etree.LxmlError:  # nothing but blanks
        return
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = element.tag
        if event == "start":
            if _is_skipped(element):
                walk.skip_subtree()
                continue
            _begin(lines, tag, element)
            lines.add(element.text)
        else:
            if not _is_skipped(element):
                _finish(lines, tag)
            elif tag == "img":
                lines.add(element.get("alt"))
            lines.add(element.tail)
        yield
    lines.end()


def _is_skipped(element: "_Element") -> bool:  # type: ignore[name-defined]  # noqa: F821 (lxml is an extra)
    classes = element.get("class", "").split()
    return (
        element.tag in _SILENT
        or not _ASIDE.isdisjoint(classes)
        or "display:none" in element.get("style", "").replace(" ", "")
        or element.get("id") == "toc"
        # A formula is its picture's description.
        or (element.tag == "img" and any(name.startswith("mwe-math") for name in classes))
    )


def _begin(lines: _Lines, tag: str, element: "_Element") -> None:  # type: ignore[name-defined]  # noqa: F821
    if tag == "a":
        lines.open_link(element.attrib)
    elif tag in _IN_ROWS:
        before = element.getprevious()
        lines.part(":" if before is not None and before.tag == "th" else " |")
        lines.cells += 1
    elif tag in _BREAKING:
        _break(lines)
        lines.level = _HEADINGS.get(tag, lines.level)


def _finish(lines: _Lines, tag: str) -> None:
    if tag == "a":
        lines.close_link()
    elif tag in _IN_ROWS:
        lines.cells -= 1
    elif tag in _BREAKING:
        _break(lines)
        lines.level = 0 if tag in _HEADINGS else lines.level


def _break(lines: _Lines) -> None:
    """The end of a line, or in a table of one value."""
    if lines.cells:
        lines.part(";")
    else:
        lines.end()


def _cut(text: str, links: list[Link]) -> Iterator[PageLine]:
    """The sentences of a paragraph, each bounded."""
    ends = [
        found.end()
        for found in _END.finditer(text)
        if not _ABBREVIATED.search(text, max(0, found.start() - 12), found.start())
    ]
    bounds = [0, *(end for end in ends if not _inside(end, links)), len(text)]
    for start, end in pairwise(bounds):
        while end - start > MOST_CHARS:
            at = text.rfind(" ", start + 1, start + MOST_CHARS) + 1
            while at > start + 1 and _inside(at, links):
                at = text.rfind(" ", start + 1, at - 1) + 1
            at = at if at > start + 1 else start + MOST_CHARS
            yield _piece(text, links, start, at)
            start = at
        yield _piece(text, links, start, end)


def _inside(at: int, links: list[Link]) -> bool:
    return any(link.start < at < link.end for link in links)


def _piece(text: str, links: list[Link], start: int, end: int, level: int = 0) -> PageLine:
    """Part of a paragraph as a line; a link longer than a line may be is text."""
    held = [
        Link(link.start - start, link.end - start, link.title)
        for link in links
        if start <= link.start and link.end <= end
    ]
    return PageLine(
        text[start:end].rstrip()[:MOST_CHARS], tuple(link for link in held if link.end <= MOST_CHARS), level
    )
