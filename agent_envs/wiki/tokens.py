"""Our tokens for search and for spelling: made in Python, so that the engine never parses a page or a query.

`VERSION` belongs to every fingerprint: raise it with any change here that changes a token.
"""

import itertools
import re
import unicodedata
from functools import lru_cache

from agent_envs.scoring import is_cjk

VERSION = 1
MAX_TOKENS = 32
"""Distinct tokens of a query that count; more would only cost time."""

_WORDS = re.compile(r"[^\W_]+")
_STOP = frozenset(
    "a an and are as at be by for from has in is it its of on or s that the to was what which who with".split()  # noqa: SIM905
)
_STOP_CJK = frozenset("的是了和与在什么")


def fold(text: str) -> str:
    """The form in which titles are compared: NFKC, case-folded, underscores as spaces, white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().replace("_", " ").split())


def words(text: str) -> list[str]:
    """The words of a query without those that say nothing, as they stand in it: no sign of a query language is left."""
    found = _WORDS.findall(unicodedata.normalize("NFKC", text))
    kept = [word for word in found if word.casefold() not in _STOP] or found
    return [word.lower() if word in ("AND", "OR", "NOT") else word for word in kept]


def tokenise(text: str) -> list[str]:
    """Search tokens in reading order: stemmed words, and single characters and pairs of Chinese runs."""
    tokens: list[str] = []
    for word in _WORDS.findall(unicodedata.normalize("NFKC", text).casefold()):
        tokens += _of_word(word) if len(word) <= 64 else _of_word(word[:64])
    return tokens


@lru_cache(maxsize=65536)
def _of_word(word: str) -> tuple[str, ...]:
    if word.isascii():
        return () if word in _STOP else (_stem(word),)
    out: list[str] = []
    run = ""
    for char in word + " ":
        cjk = is_cjk(char)
        if run and (cjk != is_cjk(run[0]) or char == " "):
            out += _of_run(run)
            run = ""
        run += char
    return tuple(out)


def _of_run(run: str) -> list[str]:
    if not is_cjk(run[0]):
        return [] if run in _STOP else [_stem(run)]
    single = [char for char in run if char not in _STOP_CJK]
    return single + [one + other for one, other in itertools.pairwise(run)]


def _stem(word: str) -> str:
    """Plural to singular in the plain cases; enough for fact pages, and it never merges short words."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def grams(title: str) -> list[str]:
    """Distinct spelling pieces of a title: threes of characters, and ones and twos where Chinese occurs."""
    text = f"  {fold(title)[:128].encode('utf-8', 'ignore').decode()} "
    pieces = [text[at : at + 3] for at in range(len(text) - 2)]
    if any(map(is_cjk, text)):
        pieces += [char for char in text if is_cjk(char)]
        pieces += [one + other for one, other in itertools.pairwise(text) if is_cjk(one) and is_cjk(other)]
    return list(dict.fromkeys(piece.replace(" ", "_") for piece in pieces))
