"""Literal scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_envs import scoring


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("The  Bel-Mora!", "bel mora"),
        ("ＢＥＬ　Ｍｏｒａ", "bel mora"),
        ("贝尔莫拉。", "贝尔莫拉"),
        ("《贝尔·莫拉》", "贝尔 莫拉"),
        ("1,534", "1534"),
        ("１５３４", "1534"),
        ("1534.0", "1534"),
        ("-3.50", "-3.5"),
        ("−3.5", "-3.5"),
        ("A", "a"),
        ("the a", "the a"),
        ("!?", ""),
    ],
)
def test_normalise(text: str, want: str) -> None:
    assert scoring.normalise(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("12", 12.0), ("1,234.5", 1234.5), ("-5", -5.0), ("1e3", 1000.0), ("7.", 7.0), ("12,34", None), ("1-2", None),
        ("", None), ("12a", None), ("inf", None), ("nan", None), ("9" * 60, None), ("1e999", None), ("Ⅷ", None),
        ("²", 2.0),
    ],
)  # fmt: skip
def test_numeric(text: str, want: float | None) -> None:
    assert scoring.numeric(text) == want


def test_exact_takes_any_alias_and_nothing_more() -> None:
    accepted = ("Bel Mora", "贝尔莫拉")
    assert scoring.exact("the bel mora.", accepted) == 1
    assert scoring.exact("贝尔莫拉", accepted) == 1
    assert scoring.exact("Bel Mora or Tor Vin", accepted) == 0
    assert scoring.exact("", ("",)) == 0
    assert scoring.exact("1,534", ("1534",)) == 1


@pytest.mark.parametrize(
    ("how", "answer", "accepted", "want"),
    [
        ("exact", "12345678901234", "12345678901235", 0.0),
        ("exact", "5 °C", "-5 °C", 0.0),
        ("exact", "−40°F", "-40°F", 1.0),
        ("exact", "−40°F", "40°F", 0.0),
        ("exact", "-$5", "$5", 0.0),
        ("exact", "$5", "€5", 0.0),
        ("exact", "$5", "5", 1.0),
        ("exact", "C", "C++", 0.0),
        ("exact", "C++.", "c++", 1.0),
        ("exact", "O-", "O+", 0.0),
        ("exact", "3 5 km", "3.5 km", 0.0),
        ("exact", "3.5 km", "3.5 KM", 1.0),
        ("exact", "1 2", "1/2", 0.0),
        ("exact", "5", "5%", 0.0),
        ("exact", "12,000 people", "12000 people", 0.0),
        ("exact", "1990-1995", "1990–1995", 1.0),
        ("exact", "1e3", "1000", 1.0),
        ("exact", "5.0", "5", 1.0),
        ("exact", "+5", "5", 1.0),
        ("exact", "June 5, 1990", "June 5 1990", 1.0),
        ("exact", "A", "A", 1.0),
        ("f1_en", "A", "A", 0.0),  # what the authors' rule makes of a choice, of signs, of points
        ("exact", "-5", "5", 0.0),
        ("exact", "−5", "-5", 1.0),
        ("f1_en", "-5", "5", 1.0),
        ("numeric", "-5", "5", 0.0),
        ("numeric", "3.14", "314", 0.0),
        ("f1_en", "3.14", "314", 1.0),
        ("numeric", "12.0", ("eleven", "12"), 1.0),
        ("numeric", "0.1", "0.10000000000001", 1.0),
        ("numeric", "0.1", "0.1001", 0.0),
        ("numeric", "twelve", "twelve", 0.0),
        ("numeric", "12", (), 0.0),
        ("f1_char", "北京市", "北京", 0.8),
        ("f1_en", "北京市", "北京", 0.0),
        ("f1", "北京市", "北京", 0.8),
        ("f1", "Bel", "Bel Mora", 2 / 3),
        ("f1_char", "ab", "abc", 0.8),
        ("f1_char", "ab", (), 0.0),
        ("f1_en", "yes it is", "yes", 0.0),
        ("f1_en", "New New York", ("x", "New York"), 0.8),
    ],
)
def test_ways_to_compare(how: str, answer: str, accepted: str | tuple[str, ...], want: float) -> None:
    assert scoring.AnswerScore(how)(answer, accepted) == pytest.approx(want)


@pytest.mark.parametrize("how", scoring.AnswerScore)
@pytest.mark.parametrize("accepted", [5, [5], None, [None]])
def test_accepted_answers_are_texts(how: scoring.AnswerScore, accepted: object) -> None:
    with pytest.raises(TypeError, match=r"accepted answers are texts, not .*: write numbers as text"):
        how("5", accepted)  # type: ignore[arg-type]


def test_f1_counts_multisets() -> None:
    assert scoring.token_f1("x x y", "x y y") == pytest.approx(2 * 2 / 6)
    assert scoring.token_f1("x x x x", "x") == pytest.approx(2 / 5)
    assert scoring.token_f1("", "x") == 0
    assert scoring.character_f1("贝尔莫", "贝尔莫拉") == pytest.approx(6 / 7)
    assert scoring.answer_f1("贝尔莫", ("Bel Mora", "贝尔莫拉")) == pytest.approx(6 / 7)
    assert scoring.answer_f1("Bel", ("Bel Mora", "贝尔莫拉")) == pytest.approx(2 / 3)
    assert scoring.answer_f1("x", ()) == 0


def test_evidence() -> None:
    assert scoring.precision_recall({1, 2, 3, 4}, {1, 9}) == (0.25, 0.5)
    assert scoring.precision_recall([], {1}) == (0.0, 0.0)
    assert scoring.precision_recall([1], []) == (0.0, 1.0)
    assert scoring.f_beta(0.25, 0.5) == pytest.approx(1 / 3)
    assert scoring.f_beta(1.0, 0.5, 0.5) == pytest.approx(1.25 * 0.5 / (0.25 + 0.5))
    assert scoring.f_beta(0.0, 0.0) == 0


@given(st.text(st.characters()), st.text(st.characters()))
def test_scores_of_any_text_are_bounded(one: str, other: str) -> None:
    assert all(0 <= how(one, (other,)) <= 1 for how in scoring.AnswerScore)
    assert 0 <= scoring.answer_f1(one, (other,)) <= 1
    assert scoring.answer_f1(one, (other,)) == pytest.approx(scoring.answer_f1(one, (other,)))
    if scoring.exact(one, (other,)):
        assert scoring.answer_f1(one, (other,)) == pytest.approx(1)
    assert scoring.normalise(scoring.normalise(one)) == scoring.normalise(one) or scoring.numeric(one) is not None
