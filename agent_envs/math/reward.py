r"""Grading of answers: numbers and fractions are compared exactly here, all else by math-verify in another process.

Invariants: no text of a model is evaluated in this process; what this file reads are digits, one sign, one point and
one fraction bar, by patterns of linear time. A verdict depends on the two texts only. Where the right answer is a
number, only what is written as one number is judged, in any notation (``\boxed{47 + 38}`` has the value of 85, and has
not solved anything); units, bases and brackets are those of the right answer, where it has some.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec

from agent_envs.core import SettingsError
from agent_envs.isolation.grader import Limits, Outside, shared
from agent_envs.math.config import Verifier

LONGEST = 300
"""Characters of an answer that are looked at; a longer one is not verified."""
_DEEPEST = 12
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x2212: "-", 0x3002: "."}
_WRAPPED = (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_SPACES = re.compile(r"\\[,;:! ]|~|\s")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?=\.[0-9]|$)")
_UNIT = re.compile(r"(?<=[0-9])\s?([\u4e00-\u9fff]{1,4})$")
_NOT_UNITS = frozenset("十百千万亿兆成折半倍分点以左右约不非余多近超")
"""Characters that change the number before them."""
_DECIMAL = re.compile(r"([0-9]{0,40})(?:\.([0-9]{0,40}))?")
_RATIO = re.compile(r"([0-9]{1,40})/([0-9]{1,40})")
_LATEX = re.compile(r"([0-9]{0,9})\\[dt]?frac(?:\{(-?[0-9]{1,40})\}\{([0-9]{1,40})\}|([0-9])([0-9]))")
_MIXED = re.compile(r"([0-9]{1,9})\s+([0-9]{1,9})/([0-9]{1,9})")
_NAMED = re.compile(r"[A-Za-z](?:_\{?[0-9A-Za-z]{1,8}\}?)?=")
"""What an answer may begin with, as in x = 5."""
_LABEL = re.compile(r"(?<=[0-9})!])(?:\\(?:text|mathrm|mbox)\{([^{}]{0,40})\}|\\?([A-Za-z]{1,12})|\^\{?\\circ\}?)$")
"""A unit at the end of a number."""
_WORDS = re.compile(r"\\(?:text|mathrm|mbox|boxed)\{([^{}]*)\}")
_SCALES = re.compile(r"(hundred|thousand|million|billion|trillion|dozen|score|percent|half|thirds?|e)s?", re.IGNORECASE)
"""Words that change the number before them."""
_PLAIN = r"(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})"
_POWER_OF = r"(?:\^|\*\*)(?:\{-?[0-9]{1,4}\}|\(-?[0-9]{1,4}\)|-?[0-9]{1,4})"
_ONE_NUMBER = re.compile(
    rf"[+-]?(?:{_PLAIN}!?|[({{]-?{_PLAIN}[)}}]|{_PLAIN}[eE][+-]?[0-9]{{1,3}}|{_PLAIN}{_POWER_OF}|[({{]-?{_PLAIN}[)}}]{_POWER_OF}"
    rf"|{_PLAIN}(?:\\times|\\cdot|\*|×)10{_POWER_OF}|\\?sqrt(?:\[[0-9]{{1,2}}\])?(?:[{{(]{_PLAIN}[}})]|[0-9])"
    r"|\\[dt]?frac\{[+-]?[0-9]{1,40}\}\{[+-]?[0-9]{1,40}\}|[+-]?[0-9]{1,40}/[+-]?[0-9]{1,40}|\\[dt]?binom\{[0-9]{1,4}\}\{[0-9]{1,4}\})"
)
_BASE = re.compile(r"_\{?([0-9]{1,3})\}?$")
_OPENS = re.compile(r"(?:\\left)?(\(|\[|\\?\{)")
_POWER = r"(?:\^|\*\*)"
_TOWER = re.compile(
    rf"{_POWER}\s*[({{]?\s*-?[^\s^*(){{}}+-]{{1,40}}\s*[)}}]?\s*{_POWER}|{_POWER}\s*[({{][^{{}}^*]{{0,40}}{_POWER}"
)
_LONG_NUMBER = re.compile(r"[0-9]{41}")
_BIG_POWER = re.compile(r"(?:\^|\*\*)\s*[({]{0,2}\s*-?[0-9]{5}|[0-9]{4}\s*!|!\s*!")


@dataclass(frozen=True)
class Verdict:
    """What the check of an answer came to."""

    right: bool
    unverified: str = ""
    """Why nobody can say, in one line; such an answer is not right."""


class _Unsure(Exception):  # noqa: N818 (no error)
    """A verdict that a busy machine may have brought about: it is not kept."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict


def verdict(
    gold: str,
    answer: str,
    verifier: Verifier = Verifier.MATH_VERIFY,
    seconds: int = 2,
    scorer: tuple[str, int, int, str] | None = None,
) -> Verdict:
    """Whether ``answer`` has the value of ``gold``, or gets full marks from an outside task's own ``scorer``.

    What that gives for less is small change. Raises SettingsError where a package is missing, and BackendUnavailable.
    """
    try:
        return _verdict(gold, answer, verifier, seconds, scorer)
    except _Unsure as unsure:
        return unsure.verdict


@lru_cache(maxsize=1 << 14)
def _verdict(
    gold: str, answer: str, verifier: Verifier, seconds: int, scorer: tuple[str, int, int, str] | None
) -> Verdict:
    if len(answer) > LONGEST:
        return Verdict(False, f"an answer of {len(answer)} characters, where {LONGEST} are looked at")
    mine, wanted = tidy(answer), tidy(gold)
    if "" != unit_of(gold) != unit_of(answer) != "":
        return Verdict(False)
    if mine == wanted:
        return Verdict(True)
    value, right = (None, None) if scorer else (number(mine), number(wanted))
    if right is not None and (value := percentage(mine) if value is None and not scorer else value) is not None:
        return Verdict(value == right)
    if verifier is Verifier.EXACT and not scorer:
        return Verdict(False)
    if not scorer and not comparable(wanted, right, mine):
        return Verdict(False)
    if reason := too_hard(mine):
        return Verdict(False, reason)
    if scorer:
        reply = _judge("agent_envs.reasoning_gym.entries:score", seconds).call(*scorer, answer.strip())
        return _certain(Verdict(type(reply.value) is float and reply.value >= 1, reply.reason))
    reply = _judge("agent_envs.math.judge:same", seconds).call(wanted, mine)
    return _certain(Verdict(reply.value is True, reply.reason))


def _certain(found: Verdict) -> Verdict:
    """Raises _Unsure where there was no answer, but for one that took too much computing."""
    if found.unverified and "of computing" not in found.unverified:
        raise _Unsure(found)
    return found


def comparable(wanted: str, right: Fraction | None, mine: str) -> bool:
    """Whether an answer has the form of the right one, of `tidy` texts: math-verify overlooks much of it."""
    if right is not None:
        return one_number(mine)
    bases = _BASE.search(wanted), _BASE.search(mine)
    if bases[0] and bases[1] and bases[0][1] != bases[1][1]:
        return False
    opened = [found[1][-1] for text in (wanted, mine) if (found := _OPENS.match(text))]
    if len(opened) == 2 and "{" in opened and opened[0] != opened[1]:
        return False  # a tuple is no set
    return "=" in wanted or mine.count("=") <= bool(_NAMED.match(_SPACES.sub("", mine)))


def one_number(text: str) -> bool:
    """Whether a text is one number in some notation, with a unit at most, and nothing that is still to be computed."""
    text = _SPACES.sub("", text.replace("\\left", "").replace("\\right", ""))
    if wrapped := _WORDS.fullmatch(text):
        text = wrapped[1]
    text = _NAMED.sub("", text, count=1).removeprefix("\\$").removeprefix("$")
    text = _THOUSANDS.sub(lambda found: found[0].replace("{,}", "").replace(",", ""), text)
    label = _LABEL.search(text)
    if label and not _ONE_NUMBER.fullmatch(text):
        if _SCALES.fullmatch((label[1] or label[2] or "").strip()):
            return False
        text = text[: label.start()]
    return _ONE_NUMBER.fullmatch(text) is not None


def _judge(target: str, seconds: int) -> Outside:
    # The wall time stays below what a step may take by default: an answer must not be able to break its environment.
    return shared(target, Limits(cpu_seconds=seconds, seconds=max(20.0, 8.0 * seconds)))


def check_installed(verifier: Verifier) -> None:
    """Raises SettingsError where math-verify is wanted and missing."""
    if verifier is Verifier.MATH_VERIFY and find_spec("math_verify") is None:
        raise SettingsError("math needs math-verify: pip install 'turnwise[math]', or --math.verifier exact")


def tidy(text: str) -> str:
    """The answer in plain characters: full-width ones become ASCII, what is put around a formula is taken off."""
    text = text.translate(_FULL_WIDTH).strip()
    for before, after in _WRAPPED:
        if text.startswith(before) and text.endswith(after) and len(text) >= len(before) + len(after):
            text = text[len(before) : len(text) - len(after)].strip()
    text = text.rstrip(".").strip()
    unit = _UNIT.search(text)
    return text[: unit.start()] if unit and _NOT_UNITS.isdisjoint(unit[1]) else text


def unit_of(text: str) -> str:
    """What `tidy` takes off behind a number, as in 5米."""
    text = text.translate(_FULL_WIDTH).strip()
    unit = _UNIT.search(text)
    return unit[1] if unit and _NOT_UNITS.isdisjoint(unit[1]) else ""


def number(text: str) -> Fraction | None:
    """The value of a plain number or fraction, of `tidy` text; None for anything else, percentages included."""
    text = text.removeprefix("\\$").removeprefix("$")
    text = text[1:].lstrip() if (minus := text.startswith("-")) else text.removeprefix("+").lstrip()
    value = _unsigned(text)
    return -value if minus and value is not None else value


def percentage(text: str) -> Fraction | None:
    """The value of a plain percentage."""
    value = number(text.removesuffix("%").removesuffix("\\").rstrip()) if text.endswith("%") else None
    return None if value is None else value / 100


def _unsigned(text: str) -> Fraction | None:
    if mixed := _MIXED.fullmatch(text):
        return None if int(mixed[3]) == 0 else int(mixed[1]) + Fraction(int(mixed[2]), int(mixed[3]))
    text = _SPACES.sub("", text) if "\\" in text else text
    if latex := _LATEX.fullmatch(text):
        up, down = int(latex[2] or latex[4]), int(latex[3] or latex[5])
        return None if down == 0 or (latex[1] and up < 0) else int(latex[1] or 0) + Fraction(up, down)
    text = _THOUSANDS.sub(lambda found: found[0].replace("{,}", "").replace(",", ""), text)
    if ratio := _RATIO.fullmatch(text):
        return None if int(ratio[2]) == 0 else Fraction(int(ratio[1]), int(ratio[2]))
    decimal = _DECIMAL.fullmatch(text)
    if not decimal or not (decimal[1] or decimal[2]):
        return None
    after = decimal[2] or ""
    return Fraction(int((decimal[1] or "0") + after), 10 ** len(after))


def too_hard(text: str) -> str:
    """Why an answer is not even sent to the verifier, which would compute until it is killed; empty for most."""
    depth = deepest = 0
    for char in text:
        depth += (char in "({[") - (char in ")}]")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:
        return f"brackets {deepest} deep"
    if _TOWER.search(text):
        return "a tower of powers"
    if _BIG_POWER.search(text):
        return "a power or factorial too large to compute"
    if _LONG_NUMBER.search(text):
        return "a number of more than 40 digits"
    if not text.isprintable():
        return "characters that cannot be printed"
    return ""
