"""Jobs and results as bytes: a JSON header and what it counts, each with its length before it.

Invariant: nothing is read beyond the message, so that what comes next on the same stream stays where it is.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

_HEADER = struct.Struct("!Q")


class Gone(EOFError):  # noqa: N818
    """The other side ended."""


def pack(header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """The body of a message."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}).encode()
    return b"".join([_HEADER.pack(len(text)), text, *blobs])


def unpack(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Header and blobs of a body. Raises ValueError for what `pack` never made."""
    try:
        end = _HEADER.size + _HEADER.unpack_from(body)[0]
        header = json.loads(body[_HEADER.size : end])
        sizes = header.pop("blobs")
    except (struct.error, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"no message: {error}") from error
    blobs = []
    for size in sizes:
        if type(size) is not int or size < 0:
            raise ValueError(f"no size of a blob: {size!r}")
        blobs.append(body[end : end + size])
        end += size
    if end != len(body):
        raise ValueError(f"a message of {len(body)} bytes that says it has {end}")
    return header, blobs


def read(fd: int) -> bytes:
    """The next message. Raises Gone."""
    return _exactly(fd, _HEADER.unpack(_exactly(fd, _HEADER.size))[0])


def write(fd: int, body: bytes) -> None:
    """Sends one message. Raises Gone."""
    rest = memoryview(_HEADER.pack(len(body)) + body)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError as error:
        raise Gone(str(error)) from error


def _exactly(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            chunk = os.read(fd, min(size - len(data), 1 << 20))
        except OSError as error:
            raise Gone(str(error)) from error
        if not chunk:
            raise Gone("the other side ended")
        data += chunk
    return bytes(data)
