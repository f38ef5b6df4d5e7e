"""Pure scores of text answers, all in [0, 1].

Every answer is compared with a list of accepted forms (aliases, both languages); the best one counts. Nothing here
accepts an answer because it merely contains the right one.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

_ARTICLES = frozenset({"a", "an", "the"})


def is_cjk(char: str) -> bool:
    """Whether a character is a Chinese ideograph (main block, extension A, compatibility, supplementary planes)."""
    code = ord(char)
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )


def normalise(text: str) -> str:
    """NFKC, case-folded, without punctuation and English articles, white space collapsed.

    Signs inside a number are kept where they change its value: ``-5``, ``3.5``; thousands separators are dropped.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    number = numeric(folded)
    if number is not None:
        return f"{number:.12g}"
    spaced = "".join(" " if unicodedata.category(char)[0] in "PSZC" else char for char in folded)
    words = [word for word in spaced.split() if word not in _ARTICLES]
    return " ".join(words)


def numeric(text: str) -> float | None:
    """The finite number that the whole text spells, e.g. ``1,234.5`` or ``１２``; None when it is not one."""
    text = unicodedata.normalize("NFKC", text).strip().rstrip(".。")
    digits = text.replace(",", "")
    if not digits or len(digits) > 40 or not digits[-1].isdecimal() or set(digits) - set("0123456789+-.e"):
        return None
    if "," in text and any(len(group) != 3 for group in text.partition(".")[0].split(",")[1:]):
        return None
    try:
        value = float(digits)
    except ValueError:
        return None  # "1-2", "e5": not a number, which is what None says
    return value if abs(value) < float("inf") else None


def exact(answer: str, accepted: Iterable[str]) -> float:
    """1.0 when the normalised answer equals a normalised accepted form; an empty answer never does."""
    got = normalise(answer)
    return float(bool(got) and any(got == normalise(form) for form in accepted))


def token_f1(answer: str, gold: str) -> float:
    """F1 over the multisets of normalised words."""
    return _multiset_f1(normalise(answer).split(), normalise(gold).split())


def character_f1(answer: str, gold: str) -> float:
    """F1 over the multisets of normalised characters without spaces: the measure for Chinese."""
    return _multiset_f1(normalise(answer).replace(" ", ""), normalise(gold).replace(" ", ""))


def answer_f1(answer: str, accepted: Iterable[str]) -> float:
    """The best F1 over the accepted forms: characters where the form holds Chinese, words elsewhere."""
    return max(
        (character_f1(answer, form) if any(map(is_cjk, form)) else token_f1(answer, form) for form in accepted),
        default=0.0,
    )


def precision_recall(found: Collection[Any], gold: Collection[Any]) -> tuple[float, float]:
    """(precision, recall) of the distinct items found; precision of nothing found is 0, recall of no gold is 1."""
    found_set, gold_set = set(found), set(gold)
    hits = len(found_set & gold_set)
    return hits / len(found_set) if found_set else 0.0, hits / len(gold_set) if gold_set else 1.0


def f_beta(precision: float, recall: float, beta: float = 1.0) -> float:
    """``(1 + β²)·P·R / (β²·P + R)``; β < 1 weighs precision more. 0 when both are 0."""
    weight = beta * beta
    below = weight * precision + recall
    return (1 + weight) * precision * recall / below if below else 0.0


def _multiset_f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    shared = sum((Counter(answer) & Counter(gold)).values())
    return 2 * shared / (len(answer) + len(gold)) if shared else 0.0
