"""Whatever bytes a host sends, they are read as promised values or as garbage."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_envs.isolation.answers import Garbage, decode, encode, nothing, printable, reset_values, step_values


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2]",
        b"{}",
        b'[7, "ok"]',
        b'[8, "ok", null]',
        b'["7", "ok", null]',
        b'[7, "fine", null]',
        b'[7, ["ok"], null]',
        b'[7, "raised", 5]',
        b'[7, "settings", null]',
        b'[7, "ok", NaN]',
        b'[7, "ok", ' + b"9" * 10_000 + b"]",
        b"[" * 100_000,
        pickle.dumps([7, "ok", None]),
    ],
)
def test_bytes_that_are_no_answer(message: bytes) -> None:
    with pytest.raises(Garbage):
        decode(message, 7)


def test_bytes_that_are_one() -> None:
    assert decode(b'[7, "ok", {"a": [1.5, null]}]', 7) == ("ok", {"a": [1.5, None]})
    assert decode(b'[7, "raised", "a\\nb\\u001b[1m\\ud800"]', 7) == ("raised", "a b?[1m?")


@given(st.binary(max_size=60))
def test_any_bytes(message: bytes) -> None:
    with pytest.raises(Garbage):
        decode(message, 7)


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=30))
def test_any_text_comes_back(text: str) -> None:
    assert decode(encode([7, "ok", {text: text}]), 7) == ("ok", {text: text})


def test_two_surrogates_stay_two() -> None:
    text = "\ud83d\ude00"
    assert decode(encode([7, "ok", text]), 7) == ("ok", text)
    assert json.loads(json.dumps(text)) != text  # what the usual way makes of it


STEP = ["text", 0.5, False, True, {"a": 1}]


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        *((0, value) for value in (None, 5, ["a"])),
        *((1, value) for value in (None, "1", True, float("inf"), float("nan"), 10**310, [])),
        *((2, value) for value in (None, 0, "false")),
        *((3, value) for value in (None, 1, [])),
        *((4, value) for value in (None, [], "{}")),
    ],
)
def test_five_values(at: int, wrong: Any) -> None:
    assert step_values(STEP) == tuple(STEP)
    assert type(step_values(["text", 1, False, True, {}])[1]) is float
    with pytest.raises(Garbage, match="step must answer"):
        step_values([*STEP[:at], wrong, *STEP[at + 1 :]])


@pytest.mark.parametrize("wrong", [None, 5, "abcde", STEP[:4], [*STEP, 1], {"0": 1}])
def test_not_five_values(wrong: Any) -> None:
    with pytest.raises(Garbage, match="step must answer"):
        step_values(wrong)


@pytest.mark.parametrize("wrong", [None, 5, "ab", [], [["a", {}]], [["a", []], "p"], [["a", {}], 5], [[5, {}], "p"]])
def test_reset_values(wrong: Any) -> None:
    assert reset_values([["a", {"b": 1}], "p"]) == ("a", {"b": 1}, "p")
    with pytest.raises(Garbage, match="reset must answer"):
        reset_values(wrong)


def test_nothing() -> None:
    assert nothing(None) is None  # type: ignore[func-returns-value]
    with pytest.raises(Garbage):
        nothing(False)


def test_a_line_that_does_no_harm() -> None:
    assert printable("a\n\tb \x1b[0m\u202e\ud800 ü 🙂") == "a b ?[0m?? ü 🙂"
    assert len(printable("x" * 5000)) == 500
