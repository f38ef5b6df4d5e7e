"""Pure scores of text answers, all in [0, 1].

Every answer is compared with a list of accepted forms (aliases, both languages); the best one counts. Nothing here
accepts an answer because it merely contains the right one.
"""

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Any

_ARTICLES = frozenset({"a", "an", "the"})
_ARTICLE_EN = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION_EN = dict.fromkeys(map(ord, string.punctuation))
_VERDICTS_EN = frozenset({"yes", "no", "noanswer"})
_MINUS = {ord("−"): "-"}
_VALUE = re.compile(r"(?<![\w.,])([-+]?)([$€£¥]?)(\d[\d,]*(?:\.\d+)?(?:/\d+)?)(\s?%)?")
_ENDS = re.compile(r"(?<=[a-z])([+#]+|(?<=\b[a-z])-)(?!\w)")


def is_cjk(char: str) -> bool:
    """Whether a character is a Chinese ideograph (main block, extension A, compatibility, supplementary planes)."""
    code = ord(char)
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )


def normalise(text: str) -> str:
    """NFKC, case-folded, without punctuation and English articles, white space collapsed.

    Signs inside a number are kept where they change its value: ``-5``, ``3.5``; thousands separators are dropped. A
    text of nothing but articles is kept: choice ``A`` is an answer.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    number = numeric(folded)
    if number is not None:
        return f"{number:.12g}"
    spaced = "".join(" " if unicodedata.category(char)[0] in "PSZC" else char for char in folded)
    words = spaced.split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def numeric(text: str) -> float | None:
    """The finite number that the whole text spells, e.g. ``1,234.5`` or ``１２``; None when it is not one."""
    text = unicodedata.normalize("NFKC", text).translate(_MINUS).strip().rstrip(".。")
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


def exact(answer: str, accepted: str | Iterable[str]) -> float:
    """1.0 when the normalised answer equals a normalised accepted form, and what it counts is the same; an empty answer
    never does."""
    got = normalise(answer)
    return float(bool(got) and any(got == normalise(form) and _same_values(answer, form) for form in _forms(accepted)))


def _same_values(one: str, other: str) -> bool:
    """Whether the numbers of two texts that are alike have the same signs, points and units, and names the same ends
    (C and C++)."""
    if numeric(one) is not None and numeric(other) is not None:
        whole = [text.replace(",", "").strip(" .。+") for text in map(_folded, (one, other))]
        return whole[0] == whole[1] or not all(text.lstrip("-").isdecimal() for text in whole)
    (values, money, ends), (others, sums, tails) = _values(one), _values(other)
    return values == others and ends == tails and (money == sums or not money or not sums)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().translate(_MINUS)


def _values(text: str) -> tuple[list[str], list[str], list[str]]:
    """(numbers with sign and per cent, currencies, signs behind letters)"""
    folded = _folded(text)
    found = [match.groups("") for match in _VALUE.finditer(folded)]
    numbers = [f"{sign.strip('+')}{digits.replace(',', '')}{percent.strip()}" for sign, _, digits, percent in found]
    return numbers, [money for _, money, *_ in found if money], _ENDS.findall(folded)


def numeric_match(answer: str, accepted: str | Iterable[str]) -> float:
    """1.0 when the answer and an accepted form both spell a number, and the same one up to rounding (1e-9)."""
    got = numeric(answer)
    wanted = (numeric(form) for form in _forms(accepted))
    return float(got is not None and any(w is not None and math.isclose(got, w, rel_tol=1e-9) for w in wanted))


def token_f1(answer: str, gold: str) -> float:
    """F1 over the multisets of normalised words."""
    return _multiset_f1(normalise(answer).split(), normalise(gold).split())


def character_f1(answer: str, gold: str) -> float:
    """F1 over the multisets of normalised characters without spaces: the measure for Chinese."""
    return _multiset_f1(normalise(answer).replace(" ", ""), normalise(gold).replace(" ", ""))


def f1_char(answer: str, accepted: str | Iterable[str]) -> float:
    """The best `character_f1` over the accepted forms."""
    return max((character_f1(answer, form) for form in _forms(accepted)), default=0.0)


def answer_f1(answer: str, accepted: str | Iterable[str]) -> float:
    """The best F1 over the accepted forms: characters where the form holds Chinese, words elsewhere."""
    return max(
        (character_f1(answer, form) if any(map(is_cjk, form)) else token_f1(answer, form) for form in _forms(accepted)),
        default=0.0,
    )


def normalise_en(text: str) -> str:
    """Lower case, ASCII punctuation deleted, then the words a, an, the; white space collapsed [SQuAD; ARPO's reward].

    Only for English prose: ``-5`` becomes ``5``, ``3.14`` becomes ``314``, choice ``A`` becomes nothing.
    """
    return " ".join(_ARTICLE_EN.sub(" ", text.lower().translate(_PUNCTUATION_EN)).split())


def f1_en(answer: str, accepted: str | Iterable[str]) -> float:
    """The best F1 over the accepted forms, 2PR / (P + R) of the words of `normalise_en` [SQuAD; ARPO's reward].

    A yes, no or noanswer on either side counts only where both sides are the same.
    """
    got, best = normalise_en(answer), 0.0
    for form in map(normalise_en, _forms(accepted)):
        shared = sum((Counter(got.split()) & Counter(form.split())).values())
        if shared and (got == form or not _VERDICTS_EN & {got, form}):
            precision, recall = shared / len(got.split()), shared / len(form.split())
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


class AnswerScore(StrEnum):
    """How an answer is compared with the accepted ones."""

    F1 = "f1"
    """Words, or characters where the accepted form holds Chinese."""
    EXACT = "exact"
    NUMERIC = "numeric"
    F1_CHAR = "f1_char"
    F1_EN = "f1_en"
    """ARPO's own rule, for English prose only."""

    def __call__(self, answer: str, accepted: str | Iterable[str]) -> float:
        """A score in [0, 1]. Raises TypeError when an accepted form is not text."""
        return _SCORES[self](answer, accepted)


_SCORES: dict[AnswerScore, Callable[[str, str | Iterable[str]], float]] = {
    AnswerScore.F1: answer_f1,
    AnswerScore.EXACT: exact,
    AnswerScore.NUMERIC: numeric_match,
    AnswerScore.F1_CHAR: f1_char,
    AnswerScore.F1_EN: f1_en,
}


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


def _forms(accepted: str | Iterable[str]) -> list[str]:
    """The accepted forms, of which a lone text is one. Raises TypeError."""
    forms = [accepted] if isinstance(accepted, str) else accepted if isinstance(accepted, Iterable) else None
    forms = None if forms is None else list(forms)
    if forms is None or not all(isinstance(form, str) for form in forms):
        raise TypeError(f"accepted answers are texts, not {accepted!r}: write numbers as text")
    return forms
