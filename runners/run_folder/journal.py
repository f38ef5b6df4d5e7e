"""Append-only records of a run: one JSON value a line.

Invariant: a checkpoint keeps a mark of each record, its length and the hash of its contents; a run that goes on from
the checkpoint first cuts the record back to that mark, so that no line is lost or written twice.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from runners.command_line.errors import UserError
from runners.command_line.plain import finite

_CHUNK = 1 << 20


class Journal:
    """A record that lines are added to. ``mark`` None begins a new one; else it goes on from there.

    Raises UserError when the file does not begin with what the mark was taken of.
    """

    def __init__(self, path: Path, mark: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.bytes, self._hash = 0, hashlib.sha256()
        if mark is None:
            self._file: IO[bytes] = path.open("xb")
            return
        try:
            self._file = path.open("r+b")
        except FileNotFoundError:
            raise UserError(f"{path} is missing: {_WAY_OUT}") from None
        self._read(mark["bytes"])
        if (self.bytes, self._hash.hexdigest()) != (mark["bytes"], mark["sha256"]):
            self._file.close()
            raise UserError(f"{path} was changed since the checkpoint was written: {_WAY_OUT}")

    def _read(self, length: int) -> None:
        while self.bytes < length and (piece := self._file.read(min(_CHUNK, length - self.bytes))):
            self._hash.update(piece)
            self.bytes += len(piece)

    def cut(self) -> None:
        """Takes away what was written after the mark."""
        self._file.truncate(self.bytes)
        self._file.seek(self.bytes)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Adds one line; numbers that JSON does not have become null."""
        try:
            text = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        except ValueError:
            text = json.dumps(finite(entry), ensure_ascii=False)
        try:
            line = text.encode("utf-8") + b"\n"
        except UnicodeEncodeError:  # half a surrogate pair can only be written as an escape
            line = json.dumps(finite(entry)).encode("ascii") + b"\n"
        self._file.write(line)
        self._hash.update(line)
        self.bytes += len(line)

    def flush(self) -> None:
        self._file.flush()

    def mark(self) -> dict[str, Any]:
        """What a checkpoint keeps; everything up to here is on the disk when this returns."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return {"bytes": self.bytes, "sha256": self._hash.hexdigest()}

    def close(self) -> None:
        self._file.close()


_WAY_OUT = "put it back as it was, or begin a new run from this one's weights with --init-from"
