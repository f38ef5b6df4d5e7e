"""Rows of files that mean harm: plain values, or one line that names the file and the row."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_envs import rows
from agent_envs.core import SettingsError
from agent_envs.rows import MOST_TEXT, checked, parts_of, rows_of, text_of

GOOD = {"a": "x", "b": [1, None]}


def test_every_line_that_is_not_empty_is_a_row(tmp_path: Path) -> None:
    # U+2028 ends no line of JSON.
    text = f'{json.dumps(GOOD)}\n\n  \r\n{{"a": "one\u2028two"}}\r\n{{}}'.encode()
    plain, packed = tmp_path / "some.jsonl", tmp_path / "some.jsonl.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    for file in (plain, packed):
        assert list(rows_of(file)) == [
            (f"{file}: line 1", GOOD),
            (f"{file}: line 4", {"a": "one\u2028two"}),
            (f"{file}: line 5", {}),
        ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2 is no JSON$"),
        (b"[1]", "line 2 is not a JSON object"),
        (b"[" * 100_000, "line 2 is no JSON$"),
        (b'{"a": ' + b"9" * 5000 + b"}", "line 2 is no JSON$"),
        (b"\xff\xfe", "line 2 is no JSON$"),
        ('\ufeff{"a": 1}'.encode(), "line 2 is no JSON$"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    file = tmp_path / "some.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + line + b"\n")
    found = rows_of(file)
    assert next(found)[1] == GOOD  # the control
    with pytest.raises(SettingsError, match=message) as raised:
        next(found)
    assert "\n" not in str(raised.value) and str(file) in str(raised.value)


def half(path: Path) -> None:
    path.write_bytes(gzip.compress(json.dumps({"x": list(range(9999))}).encode())[:200])


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("none.jsonl", lambda path: None),
        ("folder.jsonl", lambda path: path.mkdir()),
        ("half.jsonl.gz", half),
        ("plain.jsonl.gz", lambda path: path.write_text("{}")),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, make: Callable[[Path], object]) -> None:
    make(tmp_path / name)
    with pytest.raises(SettingsError, match=f"{name} cannot be read") as raised:
        list(rows_of(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_a_small_file_may_be_a_large_one_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb, many = tmp_path / "bomb.jsonl.gz", tmp_path / "many.jsonl.gz"
    bomb.write_bytes(gzip.compress(b" " * (1 << 20)))
    many.write_bytes(gzip.compress(b"{}\n" * (1 << 16)))
    assert list(rows_of(bomb)) == [] and len(list(rows_of(many))) == 1 << 16  # the control
    monkeypatch.setattr(rows, "MOST_LINE", 1 << 16)
    monkeypatch.setattr(rows, "MOST_FILE", 1 << 17)
    for file, line in ((bomb, 1), (many, 43691)):
        with pytest.raises(SettingsError, match=f"line {line}: longer than a line"):
            list(rows_of(file))


def test_the_parts_of_a_source(tmp_path: Path) -> None:
    for name in ("train.jsonl", "validation.jsonl.gz", "test.parquet", "notes.jsonl", "test.x.jsonl", "train.txt"):
        (tmp_path / name).touch()
    train, valid = tmp_path / "train.jsonl", tmp_path / "validation.jsonl.gz"
    assert parts_of(str(tmp_path)) == {"train": train, "valid": valid}
    assert parts_of(str(tmp_path), (".parquet",)) == {"test": tmp_path / "test.parquet"}
    assert parts_of(str(train)) == {"": train}
    assert parts_of(str(tmp_path / "train.txt")) == parts_of(str(tmp_path / "none.jsonl")) == {}


def test_texts() -> None:
    row = {"a": None, "b": "x", "c": 1}
    assert text_of(row, ("a", "b"), "here") == "x" and text_of(row, ("a",), "here", needed=False) == ""
    with pytest.raises(SettingsError, match="here has no 'a' or 'd'"):
        text_of(row, ("a", "d"), "here")
    assert checked("a" * MOST_TEXT, "c", "here") == "a" * MOST_TEXT
    for value in (1, "a" * (MOST_TEXT + 1)):
        with pytest.raises(SettingsError, match="here: 'c' must be a text of at most 256 Ki characters"):
            checked(value, "c", "here")
    for value in ("\ud800", "\0"):
        with pytest.raises(SettingsError, match="here: 'c' holds characters that no file can hold"):
            checked(value, "c", "here")
