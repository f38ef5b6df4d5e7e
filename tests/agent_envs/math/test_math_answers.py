"""Answers: every notation of the right value is right, nothing else is, and nothing hostile runs."""

from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time

import pytest
from math_hostile import CARRIED_OUT, hostile_answers

from agent_envs.core import SettingsError
from agent_envs.math import reward as answers
from agent_envs.math.config import Verifier
from agent_envs.math.reward import number, tidy, too_hard, verdict

needs_verifier = pytest.mark.skipif(find_spec("math_verify") is None, reason="the extra math is not installed")

PLAIN = {
    "85": [
        "85",
        " 85 ",
        "85.",
        "85。",
        "８５",
        "$85$",
        "\\(85\\)",
        "+85",
        "85.0",
        "085",
        "170/2",
        "\\frac{170}{2}",
        "85 个",
    ],
    "-3": ["-3", "−3", "－３", "- 3", "-3.00", "-\\frac{6}{2}", "\\frac{-6}{2}"],
    "1000": ["1,000", "1{,}000", "1000", "1,000.0", "１，０００", "$1,000", "\\$1000", "1000元", "1000 个"],
    "1/2": ["0.5", ".5", "1/2", "2/4", "\\frac{1}{2}", "\\dfrac{1}{2}", "\\tfrac12", "\\frac12", "１／２", "0.50"],
    "1.5": ["1 1/2", "1\\frac{1}{2}", "3/2", "1.5"],
    "0.125": ["1/8", "0.125"],
}
"""Gold to notations that are decided without the verifier."""
READ = {
    "1/2": ["50\\%", "50%", "2^{-1}"],
    "85": ["85 \\text{ cm}", "85 cm", "x = 85", "8.5 \\times 10^{1}", "85^\\circ", "\\text{85}"],
    "3": ["\\sqrt{9}", "\\frac{9}{3}"],
    "x^2+2x+1": ["(x+1)^2", "1+2x+x^2"],
    "(1, 2]": ["(1,2]"],
    "\\{1,2\\}": ["\\{2, 1\\}"],
    "\\frac{\\sqrt{3}}{2}": ["\\sqrt{3}/2"],
}
"""Gold to notations that math-verify reads."""
WRONG = [
    ("85", "84"), ("85", "-85"), ("85", "85/2"), ("85", "8 5"), ("85", "850"), ("85", ""), ("85", "8.5"),
    ("85", "85万"), ("85", "47 + 38"), ("85", "90-5"), ("85", "5 \\times 17"), ("85", "5*17"), ("85", "5²"),
    ("1/2", "1/3"), ("1/2", "0.49"), ("1/0", "1"), ("85", "85/0"), ("1000", "1,00"), ("1000", "10,00"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "written"), [(gold, text) for gold, texts in PLAIN.items() for text in texts])
def test_plain_notations_are_decided_here(gold: str, written: str) -> None:
    found = verdict(gold, written, Verifier.EXACT)
    assert found.right and not found.unverified
    assert not verdict("7", written, Verifier.EXACT).right, "the control"


UNSOLVED = {
    "56": [
        r"47\,+\,38\,-\,29", r"47\,+38\,-29", "47++38-+29", "47 + +38 - +29", "47+|38|-|29|", r"C=47\,+\,38\,-\,29",
        r"7\,\times\,8", r"\frac{7}{1/8}", "7/(1/8)", "7(8)", "(7)(8)", r"7\left(8\right)", r"\max(56, 3)", "2^3*7",
        "56=56", r"7\sqrt{64}", "56以下", "56左右", r"56\text{ thousand}", "56_{8}", r"\{56\}", "57-1", "112/2/1",
    ],
    "-3": ["7++-10", "7-10"],
    "85": ["85%", r"85\text{ million}", "85不", "86=85", "85_{7}"],
    "5米": ["5厘米"],
    "137_9": ["137_8"],
    "x+1": ["x+2=x+1"],
    r"\sqrt{2}": ["1.414214"],
    "(1,2)": [r"\{1,2\}"],
    r"\{1,2\}": ["(2,1)"],
}  # fmt: skip
SOLVED = {
    "56": ["C=56", "x = 56", r"\$56", "56 cm", r"56\text{ cm}", r"56^\circ", "+56",
           r"5.6\times10^{1}", r"\frac{112}{2}", "112/2"],
    "8": ["2^3", "2^{3}", r"\sqrt{64}", "8.0", "{8}", "(8)", "8个"],
    "0.85": ["85%", r"85\%"],
    "85": [r"8500\%"],
    "5米": ["5", "5米"],
    "137_9": ["137_9", "137_{9}"],
    "x+1": ["1+x", "y=x+1"],
    "(1,2)": ["(1, 2)", r"\left(1,2\right)"],
    r"\{1,2\}": [r"\{2,1\}"],
}  # fmt: skip


@needs_verifier
def test_what_is_not_solved_or_is_something_else_is_wrong() -> None:
    assert [(gold, text) for gold, texts in UNSOLVED.items() for text in texts if verdict(gold, text).right] == []
    assert [(gold, text) for gold, texts in SOLVED.items() for text in texts if not verdict(gold, text).right] == []


@needs_verifier
def test_other_notations_are_read_elsewhere() -> None:
    for gold, texts in READ.items():
        for text in texts:
            assert verdict(gold, text).right, (gold, text)
            assert not verdict("7", text).right, "the control"
    assert not verdict("85", "x = 85", Verifier.EXACT).right, "the control: by numbers alone it is not"


@needs_verifier
def test_other_values_are_wrong() -> None:
    for gold, text in WRONG:
        assert not verdict(gold, text).right, (gold, text)


def test_the_value_of_plain_numbers() -> None:
    table = {
        "3": 3,
        "-0.5": Fraction(-1, 2),
        "1,234,567.5": Fraction(2469135, 2),
        "7/3": Fraction(7, 3),
        "2 1/4": Fraction(9, 4),
    }
    for text, value in table.items():
        assert number(text) == value
    for text in ("", "-", ".", "1e5", "1_000", "٣", "𝟓", "1/0", "½", "0x1F", "inf", "nan", "1 2", "--1", "5%", "1,23"):
        assert number(text) is None, text
    assert tidy("$ ８５。 $") == "85" and tidy("85个") == "85" and tidy("85万") == "85万"


def test_answers_that_would_only_be_computed_until_they_are_killed_are_not_sent() -> None:
    for text in (
        "9^9^9^9",
        "9^{9^{9}}",
        "9**9**9",
        "10^{99999}",
        "99999!",
        "5!!",
        "(" * 13 + "1" + ")" * 13,
        "9" * 41,
        "1\x00",
    ):
        assert too_hard(text), text
    for text in ("x^2+2x+1", "2^{10}", "5!", "\\frac{\\sqrt{3}}{2}", "((1,2),(3,4))", "x^2+y^2"):
        assert not too_hard(text), text


@needs_verifier
def test_hostile_answers_are_wrong_soon_and_carry_nothing_out(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    found = []
    for text in hostile_answers(54, str(marker)):
        began = perf_counter()
        assert not verdict("85", text, seconds=1).right, text[:80]
        found.append(verdict("x + 85", text, seconds=1))  # for a number, all but one number is refused unread
        assert not found[-1].right, text[:80]
        assert perf_counter() - began < 60
    assert any(verdict.unverified.startswith("hung") for verdict in found), "the control: some never end"
    assert not marker.exists()
    for code in CARRIED_OUT:  # they do run where somebody evaluates them
        eval(code.format(str(marker)))
        assert marker.exists()
        marker.unlink()
    assert verdict("85", "x = 85").right, "and it still verifies"


def test_long_texts_are_looked_at_in_linear_time() -> None:
    for piece in ("9", "{", "\\frac{", "1,", "^9", " ", "9 9/9 ", "个", "(9^"):
        began = process_time()
        assert not verdict("85", piece * (1_000_000 // len(piece))).right
        text = piece * (20_000 // len(piece))
        tidy(text), number(text), too_hard(text)
        assert process_time() - began < 1, piece


def test_a_missing_verifier_is_named() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "find_spec", lambda name: None)
        with pytest.raises(SettingsError, match=r"turnwise\[math\]"):
            answers.check_installed(Verifier.MATH_VERIFY)
        answers.check_installed(Verifier.EXACT)
