"""The views of files and program output that an agent gets: numbered lines, of bounded length.

Invariant: the same files and output give the same text, without an address; what is left out is counted; all of it
takes time in proportion to the text.
"""

import re
from collections.abc import Sequence
from itertools import accumulate

_TOKEN = re.compile(r"[^\W_]+|[^\S\n]+|\n|.", re.DOTALL)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,16}")
_LONGEST = 8
"""Characters of a word that count as one token; a longer one counts as several."""


def lines_of(text: str) -> list[str]:
    """The lines of a file, without their ends."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def text_of(lines: Sequence[str]) -> str:
    """The file of these lines."""
    return "".join(f"{line}\n" for line in lines)


def numbered(lines: Sequence[str], first: int, last: int) -> str:
    """Lines ``first`` to ``last``, counted from 1, with their numbers. A sign parts them, so that an indentation is
    written, and read in tokens, as it is in the file."""
    width = len(str(len(lines)))
    return "\n".join(f"{number:{width}}|{lines[number - 1]}" for number in range(first, last + 1))


def without_addresses(text: str) -> str:
    """The text without the addresses of objects, which differ from run to run."""
    return _ADDRESS.sub("at 0x…", text)


def echoed(lines: Sequence[str], first: int, count: int, around: int) -> range:
    """The numbers of ``count`` lines from ``first`` on, and of those ``around`` them."""
    return range(max(1, first - around), min(len(lines), first + count - 1 + around) + 1)


def printed(output: bytes) -> str:
    """What a program printed as text, without addresses and without a last line end."""
    return without_addresses(output.decode("utf-8", "replace").replace("\r\n", "\n")).rstrip("\n")


def cut(text: str, most: int) -> tuple[str, str, str]:
    """(head, what is left out, tail) of a text, with about ``most`` tokens in head and tail; whole lines if possible.

    A token is a word, a run of blanks, or any other sign.
    """
    pieces = [piece[0] for piece in _TOKEN.finditer(text)]
    sums = list(accumulate((1 + (len(piece) - 1) // _LONGEST for piece in pieces), initial=0))
    if sums[-1] <= most:
        return text, "", ""
    ends = list(accumulate(map(len, pieces), initial=0))
    head = ends[max(i for i, total in enumerate(sums) if total <= most // 2)]
    tail = ends[min(i for i, total in enumerate(sums) if sums[-1] - total <= most // 2)]
    if (end := text.rfind("\n", 0, head) + 1) > head // 2:
        head = end
    if tail < (begin := text.find("\n", tail) + 1) < (tail + len(text)) // 2 and text[tail - 1] != "\n":
        tail = begin
    return text[:head], text[head:tail], text[tail:]


def standing(lines: Sequence[str], part: str) -> list[int]:
    """The first three lines, counted from 1, in which a part of a line stands."""
    return [number for number, line in enumerate(lines, 1) if part.strip() and part in line][:3]


def occurrences(lines: Sequence[str], wanted: Sequence[str]) -> tuple[int, int]:
    """(line of the first occurrence counted from 1, number of occurrences) of whole lines in lines."""
    if not wanted or not lines:
        return 0, 0
    text, needle = "\n" + "\n".join(lines) + "\n", "\n" + "\n".join(wanted) + "\n"
    at, count, first = text.find(needle), 0, 0
    while at >= 0:
        count += 1
        first = first or text.count("\n", 0, at + 1)
        at = text.find(needle, at + 1)
    return first, count
