"""What a search result shows of a page."""

from collections.abc import Sequence


def snippet(lines: Sequence[str], words: Sequence[str]) -> str:
    """The line that holds most of the words; the first of equals."""
    best, most = 0, 0
    for at, line in enumerate(lines):
        text = line.casefold()
        held = [word in text for word in words].count(True)
        if held > most:
            best, most = at, held
    return lines[best] if lines else ""
