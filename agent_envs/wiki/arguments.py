"""Reading the arguments of wiki actions: line ranges, numbers, options after a comma. Linear, for any Unicode text."""

from __future__ import annotations

import unicodedata

from agent_envs.actions import ActionError

_DASHES = dict.fromkeys(map(ord, "‐‑‒–—−~至到"), "-")
_COMMAS = dict.fromkeys(map(ord, "，、;；"), ",")
_MAX_RANGES = 50
_MAX_DIGITS = 9


def number(text: str) -> int | None:
    """A natural number in any width of digits, None when the text is not one (or is absurdly long)."""
    text = unicodedata.normalize("NFKC", text).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def line_ranges(text: str) -> list[tuple[int, int]]:
    """``17-19, 108-145`` → [(17, 19), (108, 145)]; refuses anything else."""
    pieces = unicodedata.normalize("NFKC", text).translate(_DASHES).translate(_COMMAS).split(",")
    out: list[tuple[int, int]] = []
    for piece in pieces[: _MAX_RANGES + 1]:
        if not piece.strip():
            continue
        low, dash, high = piece.partition("-")
        first = number(low.strip().lstrip("[").rstrip("]"))
        last = number(high.strip().lstrip("[").rstrip("]")) if dash else first
        if first is None or last is None or first > last:
            raise ActionError("line ids look like 17-19, 108-145", "行号写法: 17-19, 108-145")
        out.append((first, last))
    if not out or len(pieces) > _MAX_RANGES:
        raise ActionError(f"give 1 to {_MAX_RANGES} ranges of line ids", f"请给出1到{_MAX_RANGES}个行号范围")
    return out


def split_option(text: str, words: tuple[str, ...]) -> tuple[str, str | None]:
    """(text, option) when the part after the last comma begins with one of `words`, else (text, None)."""
    at = max(text.rfind(","), text.rfind("，"))
    tail = unicodedata.normalize("NFKC", text[at + 1 :]).strip().casefold() if at > 0 else ""
    if tail and any(tail.startswith(word) for word in words) and len(tail) <= 24:
        return text[:at].strip(), tail
    return text, None
