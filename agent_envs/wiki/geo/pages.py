"""The pages of the `geo` corpus: one wiki per language, a page per country, capital, currency, language and region.

Invariants: titles are unique once case and width are folded (a name in use gets its kind or country in brackets); a
fact stands on one line ``relation: value``; what a line links to has a page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from agent_envs.wiki.backend import Link, Page, PageLine
from agent_envs.wiki.geo.facts import Country, Facts, Names, load
from agent_envs.wiki.tokens import fold

Key = tuple[str, str]
"""(kind, code) of an entity; a capital has the code of its country."""

COUNTRY, CITY, CURRENCY, LANGUAGE, REGION = "country", "city", "currency", "language", "region"

WORDS: dict[str, Names] = {
    "capital": {"en": "capital", "zh": "首都"},
    "region": {"en": "region", "zh": "地区"},
    "currency": {"en": "currency", "zh": "货币"},
    "language": {"en": "official language", "zh": "官方语言"},
    "neighbours": {"en": "neighbours", "zh": "邻国"},
    "population": {"en": "population", "zh": "人口"},
    "area": {"en": "area in km²", "zh": "面积(平方公里)"},
    "calling": {"en": "calling code", "zh": "电话区号"},
    "domain": {"en": "internet domain", "zh": "互联网域名"},
    "capital of": {"en": "capital of", "zh": "所属国家"},
    "used in": {"en": "used in", "zh": "使用国家"},
    "official in": {"en": "official in", "zh": "官方使用国家"},
    "countries": {"en": "countries", "zh": "国家"},
}
"""Relations as they are written on the pages."""

_KINDS: dict[str, Names] = {
    COUNTRY: {"en": "country or territory", "zh": "国家或地区"},
    CITY: {"en": "city", "zh": "城市"},
    CURRENCY: {"en": "currency", "zh": "货币"},
    LANGUAGE: {"en": "language", "zh": "语言"},
    REGION: {"en": "region", "zh": "地区"},
}


@dataclass(frozen=True)
class GeoWiki:
    """The entities of one language and what stands on their pages."""

    language: str
    titles: dict[Key, str]
    facts: dict[Key, dict[str, tuple[Key | str, ...]]]
    """Entity → relation → its objects: entities, or text as written. Relations stand in the order of the lines."""
    aliases: dict[Key, tuple[str, ...]]

    def line(self, key: Key, relation: str) -> int:
        """Line id of a relation on a page."""
        return 2 + list(self.facts[key]).index(relation)

    def value(self, value: Key | str) -> str:
        """An object as it is written."""
        return value if isinstance(value, str) else self.titles[value]

    def page(self, key: Key) -> Page:
        """The page of an entity."""
        title, kind = self.titles[key], _KINDS[key[0]][self.language]
        lines = [PageLine(f"{title}是{kind}。" if self.language == "zh" else f"{title} is a {kind}.")]
        for relation, values in self.facts[key].items():
            text, links = f"{WORDS[relation][self.language]}: ", []
            for at, value in enumerate(values):
                text += "; " if at else ""
                written = self.value(value)
                if not isinstance(value, str):
                    links.append(Link(len(text), len(text) + len(written), written))
                text += written
            lines.append(PageLine(text, tuple(links)))
        return Page(title, tuple(lines), self.aliases[key])


@cache
def geo_wiki(language: str) -> GeoWiki:
    """The wiki of one language."""
    facts = load()
    titles = _titles(facts, language)
    content: dict[Key, dict[str, tuple[Key | str, ...]]] = {}
    for country in facts.countries.values():
        content[COUNTRY, country.code] = {
            relation: values for relation, values in _country_facts(country).items() if values
        }
        if country.capital:
            content[CITY, country.code] = {"capital of": ((COUNTRY, country.code),)}
    for kind, names, field, relation in (
        (CURRENCY, facts.currencies, "currencies", "used in"),
        (LANGUAGE, facts.languages, "languages", "official in"),
    ):
        for code in names:
            content[kind, code] = {relation: _countries(facts, field, code)}
    for code in facts.regions:
        result = tuple((COUNTRY, one.code) for one in facts.countries.values() if one.region == code)
        content[REGION, code] = {"countries": result}
    return GeoWiki(language, titles, content, {key: _aliases(facts, key, titles[key]) for key in content})


def _countries(facts: Facts, field: str, code: str) -> tuple[Key | str, ...]:
    return tuple((COUNTRY, one.code) for one in facts.countries.values() if code in getattr(one, field))


def _country_facts(country: Country) -> dict[str, tuple[Key | str, ...]]:
    facts: dict[str, tuple[Key | str, ...]] = {
        "capital": ((CITY, country.code),) if country.capital else (),
        "region": ((REGION, country.region),) if country.region else (),
        "currency": tuple((CURRENCY, code) for code in country.currencies),
        "language": tuple((LANGUAGE, code) for code in country.languages),
        "neighbours": tuple((COUNTRY, code) for code in country.neighbours),
    }
    return facts | {relation: (written,) for relation, written in country.numbers.items()}


def names_of(facts: Facts, key: Key) -> Names:
    """Names of an entity in all languages, without brackets."""
    kind, code = key
    if kind == COUNTRY:
        return facts.countries[code].names
    if kind == CITY:
        return facts.countries[code].capital
    return {CURRENCY: facts.currencies, LANGUAGE: facts.languages, REGION: facts.regions}[kind][code]


def _titles(facts: Facts, language: str) -> dict[Key, str]:
    """Entity → title. Countries go first, so it is the city that is called ``Singapore (city)``."""
    keys: list[Key] = [(COUNTRY, code) for code in facts.countries]
    keys += [(CITY, code) for code, country in facts.countries.items() if country.capital]
    for kind, names in ((REGION, facts.regions), (CURRENCY, facts.currencies), (LANGUAGE, facts.languages)):
        keys += [(kind, code) for code in names]
    count: dict[str, int] = {}
    for key in keys:
        name = fold(names_of(facts, key)[language])
        count[name] = count.get(name, 0) + (key[0] != COUNTRY)
    countries = {fold(country.names[language]) for country in facts.countries.values()}
    titles: dict[Key, str] = {}
    for key in keys:
        name = names_of(facts, key)[language]
        mark = ""
        if key[0] != COUNTRY and count[fold(name)] > 1:
            mark = facts.countries[key[1]].names[language] if key[0] == CITY else key[1]
        elif key[0] != COUNTRY and fold(name) in countries:
            mark = _KINDS[key[0]][language]
        titles[key] = f"{name} ({mark})" if mark else name
    return titles


def _aliases(facts: Facts, key: Key, title: str) -> tuple[str, ...]:
    """Redirects: the plain names in every language, and other names of a country."""
    result = [*names_of(facts, key).values()]
    if key[0] == COUNTRY:
        result += facts.countries[key[1]].aliases
    elif key[0] in (CURRENCY, LANGUAGE):
        result.append(key[1])
    return tuple(name for name in dict.fromkeys(result) if fold(name) != fold(title))


def pages_of(languages: tuple[str, ...]) -> Iterator[tuple[str, Iterator[Page]]]:
    """(partition, its pages) of the whole corpus."""
    for language in languages:
        wiki = geo_wiki(language)
        yield f"geo-{language}", (wiki.page(key) for key in wiki.facts)
