"""The answer in a LaTeX box.

Invariant: what is returned is a part of the text that was given, never something made from it.
"""

import re

_BOX = re.compile(r"\\boxed\s*\{")
_BLANK = "\\boxed "


def boxed(text: str) -> str:
    r"""The content of the last ``\boxed{…}``, braces matched and escaped ones passed over, without the blanks around.

    Raises ValueError, in words for whoever wrote the text, when there is none, or it is empty or not closed.
    """
    begins = [result.end() for result in _BOX.finditer(text)]
    if not begins:
        raise ValueError("the answer is not in \\boxed{}")
    end = _closing(text, begins[-1] - 1, escapes=True)
    if end is None:
        raise ValueError("\\boxed{ is not closed")
    content = text[begins[-1] : end].strip()
    if not content:
        raise ValueError("\\boxed{} is empty")
    return content


def last_boxed(text: str) -> str | None:
    r"""The last box as the MATH data set and ARPO find it; None when there is none or it is not closed.

    ``\boxed `` with a blank, anywhere, wins, and goes up to the next ``$`` or the end. Else it begins at the last
    ``\boxed``, or without any at the last ``\fbox``, and ends with the brace that closes the first one after it.
    """
    if _BLANK in text:
        return _BLANK + text.rpartition(_BLANK)[2].partition("$")[0]
    start = text.rfind("\\boxed")
    start = text.rfind("\\fbox") if start < 0 else start
    end = None if start < 0 else _closing(text, start, escapes=False)
    return None if end is None else text[start : end + 1]


def unbox(box: str | None) -> str:
    r"""The content of what `last_boxed` found. Raises ValueError for anything but ``\boxed{…}`` and ``\boxed …``."""
    if box is not None and box.startswith(_BLANK):
        return box.removeprefix(_BLANK)
    if box is None or not (box.startswith("\\boxed{") and box.endswith("}")):
        raise ValueError("no \\boxed{} that is closed")
    return box[len("\\boxed{") : -1]


def _closing(text: str, start: int, *, escapes: bool) -> int | None:
    """Where the braces opened since ``start`` are all closed again; None when they never are."""
    depth, at = 0, start
    while at < len(text):
        if escapes and text[at] == "\\":
            at += 2
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        if text[at] == "}" and depth == 0:
            return at
        at += 1
    return None
