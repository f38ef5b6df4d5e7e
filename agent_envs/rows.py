"""Untrusted files of rows: one JSON object a line.

Invariant: whatever the file holds, reading it ends with plain values of bounded size, or with one line that names the
file and the row. Nothing of it is run.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_envs.core import SettingsError

Row = Mapping[str, Any]

ENDINGS = (".jsonl", ".jsonl.gz")
SPLIT_OF = {"train": "train", "valid": "valid", "validation": "valid", "test": "test"}
"""What a part of a source may be called → its split."""
MOST_FILE, MOST_LINE = 1 << 30, 1 << 25
"""Bytes, unpacked."""
MOST_TEXT = 1 << 18
"""Characters of one text."""


def parts_of(source: str, endings: tuple[str, ...] = ENDINGS) -> dict[str, Path]:
    """Split → file of a folder; "" → a file that is for all splits; nothing where neither is there."""
    path = Path(source).expanduser()
    if path.is_dir():
        named = ((file, file.name.partition(".")) for file in sorted(path.iterdir()))
        return {SPLIT_OF[stem]: file for file, (stem, _, end) in named if stem in SPLIT_OF and f".{end}" in endings}
    return {"": path} if path.name.endswith(endings) and path.is_file() else {}


def rows_of(file: Path) -> Iterator[tuple[str, Row]]:
    """(where it stands, row) of every line that is not empty. Raises SettingsError."""
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
            number = read = 0
            while line := stream.readline(MOST_LINE + 1):
                number, read = number + 1, read + len(line)
                where = f"{file}: line {number}"
                if len(line) > MOST_LINE or read > MOST_FILE:
                    raise SettingsError(f"{where}: longer than a line ({MOST_LINE >> 20} MiB) or a file may be")
                if line.strip():
                    yield where, _row(line, where)
    except (OSError, EOFError, zlib.error) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from error


def _row(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where} is no JSON") from error
    if not isinstance(row, dict):
        raise SettingsError(f"{where} is not a JSON object")
    return row


def text_of(row: Row, keys: tuple[str, ...], where: str, *, needed: bool = True) -> str:
    """The text under the first of these keys that is there; "" when none is and it is not needed."""
    for key in keys:
        value = row.get(key)
        if value is not None:
            return checked(value, key, where)
    if needed:
        raise SettingsError(f"{where} has no {' or '.join(map(repr, keys))}")
    return ""


def checked(value: Any, key: str, where: str) -> str:
    """The value under a key, where it is a text that can be used. Raises SettingsError."""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise SettingsError(f"{where}: {key!r} must be a text of at most {MOST_TEXT >> 10} Ki characters")
    if any("\ud800" <= char <= "\udfff" for char in value) or "\0" in value:
        raise SettingsError(f"{where}: {key!r} holds characters that no file can hold")
    return value
