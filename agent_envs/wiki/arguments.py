"""Reading the arguments of wiki actions: line ranges, numbers, options after a comma. Linear, for any Unicode text."""

import unicodedata

from agent_envs.actions import ActionError

_DASHES = dict.fromkeys(map(ord, "‐‑‒–—−~至到"), "-")
_COMMAS = dict.fromkeys(map(ord, "，、;；"), ",")
_MAX_RANGES = 50
_MAX_DIGITS = 9
_MAX_OPTION = 32
_MAX_RESULT_PAGE = 10_000


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


def page_option(text: str) -> tuple[str, int]:
    """``query, page=2`` → (query, 2). Without the option the number is 1; refuses ``page=0``."""
    query, tail = _last_part(text)
    name, equals, value = tail.partition("=")
    if not equals or name.strip() != "page":
        return text, 1
    page = number(value)
    if not page or page > _MAX_RESULT_PAGE:
        raise ActionError("page=n needs a number from 1", "page=n 需要从1起的数字")
    return query, page


def next_option(text: str) -> tuple[str, bool]:
    """``text, next`` → (text, True); without the option (text, False)."""
    needle, tail = _last_part(text)
    return (needle, True) if tail in ("next", "下一个") else (text, False)


def _last_part(text: str) -> tuple[str, str]:
    """(text before the last comma, folded text after it); the second is empty when nothing stands before the comma."""
    at = max(text.rfind(","), text.rfind("，"))
    if at <= 0 or len(text) - at > _MAX_OPTION:
        return text, ""
    return text[:at].strip(), unicodedata.normalize("NFKC", text[at + 1 :]).strip().casefold()
