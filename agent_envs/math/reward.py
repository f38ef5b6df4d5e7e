r"""Grading of answers: numbers and fractions are compared exactly here, all else by math-verify in another process.

Invariants: no text of a model is evaluated in this process; what this file reads are digits, one sign, one point and
one fraction bar, by patterns of linear time. A verdict depends on the two texts only. Where the right answer is a
number, a sum or product is not accepted for it (``\boxed{47 + 38}`` has the value of 85, and has not solved anything).
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
_NOT_UNITS = frozenset("十百千万亿兆成折半倍分点")
"""Characters that change the number before them."""
_DECIMAL = re.compile(r"([0-9]{0,40})(?:\.([0-9]{0,40}))?")
_RATIO = re.compile(r"([0-9]{1,40})/([0-9]{1,40})")
_LATEX = re.compile(r"([0-9]{0,9})\\[dt]?frac(?:\{(-?[0-9]{1,40})\}\{([0-9]{1,40})\}|([0-9])([0-9]))")
_MIXED = re.compile(r"([0-9]{1,9})\s+([0-9]{1,9})/([0-9]{1,9})")
_SUM = re.compile(r"[0-9)}\]a-zA-Z!]\s*(?:[+*×·÷−-]|\\(?:times|cdot|div|pm)(?!\s*10\s*\^))\s*[0-9(\\{a-zA-Z-]")
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


@lru_cache(maxsize=1 << 14)
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
    if len(answer) > LONGEST:
        return Verdict(False, f"an answer of {len(answer)} characters, where {LONGEST} are looked at")
    mine, wanted = tidy(answer), tidy(gold)
    if mine == wanted:
        return Verdict(True)
    value, right = (None, None) if scorer else (number(mine), number(wanted))
    if value is not None and right is not None:
        return Verdict(value == right)
    if verifier is Verifier.EXACT and not scorer:
        return Verdict(False)
    if right is not None and _SUM.search(mine):
        return Verdict(False)
    if reason := too_hard(mine):
        return Verdict(False, reason)
    if scorer:
        reply = _judge("agent_envs.reasoning_gym.entries:score", seconds).call(*scorer, answer.strip())
        return Verdict(type(reply.value) is float and reply.value >= 1, reply.reason)
    reply = _judge("agent_envs.math.judge:same", seconds).call(wanted, mine)
    return Verdict(reply.value is True, reply.reason)


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


def number(text: str) -> Fraction | None:
    """The value of a plain number or fraction, of `tidy` text; None for anything else, percentages included."""
    text = text.removeprefix("\\$").removeprefix("$")
    text = text[1:].lstrip() if (minus := text.startswith("-")) else text.removeprefix("+").lstrip()
    value = _unsigned(text)
    return -value if minus and value is not None else value


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
