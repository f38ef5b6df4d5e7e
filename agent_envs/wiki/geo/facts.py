"""The facts of the `geo` corpus: countryinfo, pycountry and Babel joined on ISO codes, corrected, in two languages.

Invariants: borders are mutual; every code named in a fact is an entity; the same versions of the sources give the same
facts in the same order.
"""

from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Any

from agent_envs.core import SettingsError
from agent_envs.wiki.config import LANGUAGES
from agent_envs.wiki.geo.corrections import CAPITALS, CAPITALS_ZH, CODES, CURRENCIES, NOT_BORDERS, REGIONS

SOURCES = ("babel", "countryinfo", "pycountry")
Names = dict[str, str]


@dataclass(frozen=True)
class Country:
    """A country or territory; codes refer to the other entities of `Facts`."""

    code: str
    """ISO 3166 alpha-3."""
    names: Names
    """Language → name."""
    capital: Names
    """Language → name of its capital; empty when it has none."""
    region: str
    """UN M49 code of its region, or empty."""
    currencies: tuple[str, ...]
    """ISO 4217 codes of its legal tender."""
    languages: tuple[str, ...]
    """Codes of its official languages."""
    neighbours: tuple[str, ...]
    """Codes of the countries it borders by land."""
    numbers: dict[str, str]
    """population, area (km²), calling, domain: as far as known, as written."""
    aliases: tuple[str, ...]
    """Other names and codes of the country."""


@dataclass(frozen=True)
class Facts:
    """All entities of the corpus."""

    countries: dict[str, Country]
    currencies: dict[str, Names]
    languages: dict[str, Names]
    regions: dict[str, Names]


def versions() -> str:
    """Versions of the sources; part of the corpus key."""
    try:
        return " ".join(f"{name}={metadata.version(name)}" for name in SOURCES)
    except metadata.PackageNotFoundError as error:
        raise _missing(error) from error


def _missing(error: ImportError) -> SettingsError:
    return SettingsError(f"the geo corpus needs the package {error.name}: pip install 'turnwise[geo]'")


@cache
def load() -> Facts:
    """Read the sources. Raises `SettingsError` naming the extra when one is not installed."""
    try:
        import pycountry
        from babel import Locale
        from babel.core import get_global
        from babel.numbers import get_territory_currencies
        from countryinfo import CountryInfo
    except ImportError as error:
        raise _missing(error) from error
    locales = {code: Locale(code) for code in LANGUAGES}
    spoken = get_global("territory_languages")
    raw: dict[str, dict[str, Any]] = {
        country.alpha_3: {**CountryInfo(country.alpha_2).info(), "alpha2": country.alpha_2}
        for country in sorted(pycountry.countries, key=lambda country: country.alpha_3)
    }
    borders = _borders(raw)
    cities = _city_names(locales)

    def names(field: str, code: str) -> Names | None:
        """Names of a code in all languages, None when one is unknown."""
        result = {lang: getattr(locale, field).get(code) for lang, locale in locales.items()}
        return result if all(result.values()) else None

    countries: dict[str, Country] = {}
    for code, info in raw.items():
        alpha2 = info["alpha2"]
        called = names("territories", alpha2)
        if called is None or not (info.get("population") or info.get("area")):
            continue
        capital = _capital(code, info.get("capital"), cities)
        official = [
            lang.partition("_")[0]
            for lang, entry in spoken.get(alpha2, {}).items()
            if entry["official_status"] in ("official", "de_facto_official")
        ]
        money = CURRENCIES.get(code) or tuple(get_territory_currencies(alpha2))
        countries[code] = Country(
            code,
            called,
            capital,
            REGIONS.get(info.get("subregion") or "", ""),
            tuple(one for one in money if names("currencies", one)),
            tuple(one for one in dict.fromkeys(official) if names("languages", one)),
            tuple(sorted(borders[code])),
            _numbers(info),
            (info["name"], code, *(str(native) for native in [info.get("nativeName")] if native)),
        )
    kept = {
        code: replace(one, neighbours=tuple(other for other in one.neighbours if other in countries))
        for code, one in countries.items()
    }

    def used(field: str, keys: set[str]) -> dict[str, Names]:
        return {key: result for key in sorted(keys) if (result := names(field, key)) is not None}

    return Facts(
        kept,
        used("currencies", {key for one in kept.values() for key in one.currencies}),
        used("languages", {key for one in kept.values() for key in one.languages}),
        used("territories", {one.region for one in kept.values() if one.region}),
    )


def _borders(raw: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """Mutual borders between known codes."""
    out: dict[str, set[str]] = {code: set() for code in raw}
    for code, info in raw.items():
        for named in info.get("borders") or []:
            other = CODES.get(named, named)
            if other in raw and frozenset((code, other)) not in NOT_BORDERS:
                out[code].add(other)
                out[other].add(code)
    return out


def _city_names(locales: dict[str, Any]) -> dict[str, str]:
    """English → Chinese names of the cities that name a time zone."""
    zones = locales["zh"].time_zones
    return {zone.split("/")[-1].replace("_", " "): entry["city"] for zone, entry in zones.items() if "city" in entry}


def _capital(code: str, named: Any, cities: dict[str, str]) -> Names:
    result = CAPITALS.get(code, named if isinstance(named, str) else "")
    return {"en": result, "zh": CAPITALS_ZH.get(code) or cities.get(result, result)} if result else {}


def _numbers(info: dict[str, Any]) -> dict[str, str]:
    """Facts that are written as numbers or marks; those with several values are left out."""
    out = {}
    for key in ("population", "area"):
        if info.get(key):
            out[key] = f"{float(info[key]):.12g}"
    for key, source in (("calling", "callingCodes"), ("domain", "tld")):
        values = info.get(source) or []
        if len(values) == 1 and values[0]:
            out[key] = str(values[0])
    return out
