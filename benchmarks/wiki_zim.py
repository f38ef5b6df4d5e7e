"""Pages of a wiki as HTML, and as a ZIM file in the layout of Kiwix: relative links, underscores in paths."""

import html
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent_envs.wiki.backend import Page, PageLine


def html_of(page: Page, href: Callable[[str], str]) -> str:
    """The body of a page as MediaWiki writes it; ``href``: title → address of a link."""
    return f'<div class="mw-parser-output">{"".join(_block(line, href) for line in page.lines)}</div>'


def _block(line: PageLine, href: Callable[[str], str]) -> str:
    pieces, end = [], 0
    for link in line.links:
        shown, title = html.escape(line.text[link.start : link.end]), html.escape(link.title)
        target = html.escape(href(link.title))
        pieces += [html.escape(line.text[end : link.start]), f'<a href="{target}" title="{title}">{shown}</a>']
        end = link.end
    tag = f"h{line.level}" if line.level else "p"
    return f"<{tag}>{''.join(pieces)}{html.escape(line.text[end:])}\n</{tag}>"


def item(path: str, title: str, content: str | bytes, mimetype: str = "text/html") -> Any:
    """One entry of a file."""
    from libzim.writer import Hint, Item, StringProvider

    class Entry(Item):
        def get_path(self) -> str:
            return path

        def get_title(self) -> str:
            return title

        def get_mimetype(self) -> str:
            return mimetype

        def get_contentprovider(self) -> StringProvider:
            return StringProvider(content)

        def get_hints(self) -> dict[Hint, bool]:
            return {Hint.FRONT_ARTICLE: True}

    return Entry()


def _path(title: str) -> str:
    return title.replace(" ", "_")


def _article(page: Page) -> Any:
    up = "../" * _path(page.title).count("/") or "./"
    body = html_of(page, lambda title: f"{up}{quote(_path(title))}")
    name = html.escape(page.title)
    whole = f"<html><head><title>{name}</title></head><body><h1>{name}</h1>{body}</body></html>"
    return item(_path(page.title), page.title, whole)


def write_zim(file: Path, pages: Iterable[Page], *, indexed: bool = True, further: Iterable[Any] = ()) -> Path:
    """Pages, their aliases as redirects, and further items."""
    from libzim.writer import Creator, Hint

    with Creator(file).config_indexing(indexed, "eng") as creator:
        for page in pages:
            creator.add_item(_article(page))
            for alias in page.aliases:
                creator.add_redirection(_path(alias), alias, _path(page.title), {Hint.FRONT_ARTICLE: True})
        for entry in further:
            creator.add_item(entry)
        creator.add_metadata("Title", "pages")
    return file
