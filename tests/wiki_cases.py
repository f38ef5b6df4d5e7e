"""The pages that every backend of the wiki is tested on: links, sections, redirects, Chinese and awkward titles."""

import re

from agent_envs.wiki.backend import Link, Page, PageLine

_LINK = re.compile(r"\[\[([^\]|]*)(?:\|([^\]]*))?\]\]")


def line(text: str, level: int = 0) -> PageLine:
    """A line from text with ``[[links]]`` and ``[[title|shown]]``."""
    shown, links, end = "", [], 0
    for found in _LINK.finditer(text):
        shown += text[end : found.start()]
        name = found[2] or found[1]
        links.append(Link(len(shown), len(shown) + len(name), found[1]))
        shown, end = shown + name, found.end()
    return PageLine(shown + text[end:], tuple(links), level)


def page(title: str, *rows: str, aliases: tuple[str, ...] = ()) -> Page:
    """A page from rows; ``== text`` is a heading."""
    lines = [line(row.lstrip("= "), len(row) - len(row.lstrip("="))) for row in rows]
    return Page(title, tuple(lines), aliases)


PAGES = (
    page(
        "Freedonia",
        "Freedonia is a country on the [[Marx Sea]].",
        "capital: [[Firefly City]]",
        "== Geography",
        "It borders [[Sylvania]] and, over the [[Marx Sea|sea]], [[AC/DC]].",
        "=== Climate",
        "The climate is mild.",
        "== Economy",
        "currency: [[Freedonian crown]]",
        aliases=("Old Freedonia", "Republic of Freedonia"),
    ),
    page("Sylvania", "Sylvania is a country.", "neighbour: [[Freedonia]]"),
    page("Firefly City", "Firefly City is the capital of [[Freedonia]].", "population: 421733"),
    page("Freedonian crown", "The crown is the currency of [[Freedonia]].", "introduced: 1933"),
    page("Marx Sea", "The Marx Sea is a sea."),
    page("Mercury", "Mercury may mean:", "[[Mercury (planet)]], a planet", "[[Mercury (element)]], an element"),
    page("Mercury (planet)", "Mercury is a planet with a short year."),
    page("Mercury (element)", "Mercury is an element that is liquid."),
    page("费里多尼亚", "费里多尼亚是国家。", "首都: [[萤火城]]", "== 地理", "它与西尔瓦尼亚接壤。", aliases=("费国",)),
    page("萤火城", "萤火城是[[费里多尼亚]]的首都。"),
    page("C++", "C++ is a language."),
    page("AC/DC", "AC/DC is a band from [[Who?]]"),
    page("Who?", "Who? is a place at 100%."),
    page("100%", "100% is a number with a sign."),
    page("O'Neill & Sons", 'O\'Neill & Sons is a firm; its sign is "&amp;" & <b>.'),
    page("Ångström", "An Ångström is a length."),
    page("Star: The Journey", "Star: The Journey is a film, and no page of another kind."),
    page("Long page", *(f"Row {number} of this page is about [[Freedonia]]." for number in range(1, 61))),
)
"""No title is the beginning of a namespace; every link leads to one of them."""
