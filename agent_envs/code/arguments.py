"""Reading the arguments of coding actions: a file and a range of lines. Linear, for any Unicode text."""

import unicodedata
from collections.abc import Collection

from agent_envs.actions import ActionError

SEPARATOR = "======="
"""The line between the old and the new lines of REPLACE."""
_DASHES = dict.fromkeys(map(ord, ":：‐‑‒–—−-"), ":")
_MAX_DIGITS = 9
_MAX_NAME = 200


def file_and_range(text: str, files: Collection[str]) -> tuple[str, tuple[int, int] | None]:
    """``main.py, 3:4`` → (main.py, (3, 4)). The only file need not be named; one line is a range, too.

    None for no range. Raises ActionError.
    """
    name, comma, tail = _split(text)
    result = _range(tail if comma else name)
    if result is None and comma:
        raise ActionError("lines look like 3:5", "行号写法: 3:5")
    if comma or result is None:
        return file_or_only(name, files), result
    return file_or_only("", files), result


def lines_asked(text: str, files: Collection[str]) -> tuple[str, int, int]:
    """(file, first, last); the range must be there. Raises ActionError."""
    name, found = file_and_range(text, files)
    if found is None:
        raise ActionError("say which lines, as in 3:5", "请写明行号, 例: 3:5")
    return name, *found


def file_or_only(text: str, files: Collection[str]) -> str:
    """The name as it was written, or that of the only file where none was. Raises ActionError."""
    if text:
        return text[:_MAX_NAME]
    if len(files) != 1:
        raise ActionError("say which file", "请写明文件名")
    return next(iter(files))


def text_and_file(text: str, files: Collection[str]) -> tuple[str, str | None]:
    """``total, main.py`` → (total, main.py) where that file exists; else all of it is the text."""
    name, comma, tail = _split(text)
    return (name, tail) if comma and tail in files and name else (text, None)


def old_and_new(body: str) -> tuple[str, str]:
    """The lines above and below the one line that separates them. Raises ActionError."""
    lines = body.splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if line.rstrip() == SEPARATOR]
    if len(at) != 1 or at[0] == 0:
        raise ActionError(
            f"write the old lines, one line {SEPARATOR}, and the new lines",
            f"先写旧的行，再写一行 {SEPARATOR}，再写新的行",
        )
    return "".join(lines[: at[0]]), "".join(lines[at[0] + 1 :])


def _split(text: str) -> tuple[str, str, str]:
    """(text before the last comma, the comma, text after it), stripped."""
    at = max(text.rfind(","), text.rfind("，"))
    return (text[:at].strip(), text[at], text[at + 1 :].strip()) if at >= 0 else (text.strip(), "", "")


def _range(text: str) -> tuple[int, int] | None:
    first, colon, last = unicodedata.normalize("NFKC", text[:60]).translate(_DASHES).partition(":")
    low, high = _number(first), _number(last) if colon else _number(first)
    if len(text) > 60 or low is None or high is None or not 1 <= low <= high + 1:
        return None
    return low, high


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
