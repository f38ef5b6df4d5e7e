"""Pages as the XML that a MediaWiki imports, and from the command line the fictional worlds of the default wiki.

    python scripts/mediawiki_xml.py --language en > world.xml        one world of each split
    php maintenance/importDump.php world.xml                         in the folder of a MediaWiki

Every line of a page becomes a paragraph or a heading, a link stays a link, an alias becomes a redirect.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agent_envs.wiki import world
from agent_envs.wiki.backend import Page, PageLine
from agent_envs.wiki.config import LANGUAGES, WikiConfig

_OUTER = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">'
_FORMAT = "<model>wikitext</model><format>text/x-wiki</format>"


def wikitext(page: Page) -> str:
    return "\n\n".join(map(_paragraph, page.lines))


def _paragraph(line: PageLine) -> str:
    pieces, end = [], 0
    for link in line.links:
        shown = line.text[link.start : link.end]
        pieces += [
            _quoted(line.text[end : link.start]),
            f"[[{link.title}]]" if shown == link.title else f"[[{link.title}|{shown}]]",
        ]
        end = link.end
    text = "".join(pieces) + _quoted(line.text[end:])
    return f"{'=' * line.level} {text} {'=' * line.level}" if line.level else text


def _quoted(text: str) -> str:
    """Text that means nothing else to a MediaWiki."""
    special = re.search(r"^[*#:;= ]|''|\[\[|\{\{|~~~|__|://|--|[<&]", text)
    return f"<nowiki>{escape(text)}</nowiki>" if special and text.strip() else text


def export(pages: Iterable[Page]) -> Iterator[str]:
    """The lines of the XML."""
    yield _OUTER
    for page in pages:
        yield _revision(page.title, wikitext(page))
        yield from (_revision(alias, f"#REDIRECT [[{page.title}]]") for alias in page.aliases)
    yield "</mediawiki>"


def _revision(title: str, text: str) -> str:
    body = f'{_FORMAT}<text xml:space="preserve">{escape(text)}</text>'
    who = "<timestamp>2026-01-01T00:00:00Z</timestamp><contributor><username>Admin</username></contributor>"
    return f"<page><title>{escape(title)}</title><ns>0</ns><revision>{who}{body}</revision></page>"


def world_pages(seed: int = 0, pages: int = 40, language: str = "en") -> list[Page]:
    """The pages of the first world of each split: they share no name, so that one wiki holds them all."""
    one = dict.fromkeys(("train_worlds", "valid_worlds", "test_worlds"), 1)
    config = WikiConfig(seed=seed, pages=pages, languages=(language,), **one)
    return list(chain.from_iterable(found for _, found in world.pages_of(config)))


def main() -> None:
    parser = argparse.ArgumentParser(description="The worlds of the default wiki as MediaWiki XML.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--language", choices=LANGUAGES, default="en")
    asked = parser.parse_args()
    print("\n".join(export(world_pages(asked.seed, asked.pages, asked.language))))


if __name__ == "__main__":
    main()
