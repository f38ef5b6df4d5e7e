"""Titles that are written alike, for wikis whose own search does not forgive a wrong letter."""

import unicodedata
from collections.abc import Iterable

from rapidfuzz import fuzz

from agent_envs.wiki import tokens

LONGEST = 400
"""Characters of a title or query that count: what an agent writes must not fill the caches."""


def spellings(title: str) -> list[str]:
    """Other ways to write a title that count as the same one, the likely ones first."""
    wide = " ".join(unicodedata.normalize("NFKC", title).split())
    lower = wide.casefold()
    forms = (wide, _capital(wide), _capital(lower), capitals(lower), capitals(wide), lower, wide.upper())
    return [form for form in dict.fromkeys(forms) if form != title]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def capitals(text: str) -> str:
    """Every word with a capital."""
    return " ".join(map(_capital, text.split(" ")))


def alike(title: str, candidates: Iterable[str], k: int) -> tuple[str, ...]:
    """The `k` candidates spelled most like a title; of equals the first."""
    folded = tokens.fold(title)[:128]
    ranked = sorted((-fuzz.ratio(folded, tokens.fold(one)[:128]), at, one) for at, one in enumerate(candidates))
    return tuple(one for _, _, one in ranked[:k])
