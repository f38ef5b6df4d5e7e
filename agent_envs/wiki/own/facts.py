"""What the lines of any wiki's page state: facts of one object, and links.

Invariants: a relation that a page states twice, or with several objects, is no fact. Only the lines that an agent sees
when it opens the page are read for facts, while all lines of the page count against a relation.
"""

import re
from collections import Counter
from typing import NamedTuple

from agent_envs.actions import ACTION, ACTION_END, THINK, THINK_END
from agent_envs.wiki.backend import Page, PageLine
from agent_envs.wiki.tokens import fold

_STATED = re.compile(r"([^:：;|.?!\"]{1,60})(?:: |：\s?)(\S.*)")
_MOST_WORDS = 5
"""Words of a relation; more are a sentence."""
_MOST_VALUE = 80
"""Characters of an object that is no link."""
_SEVERAL = re.compile(r"[;；|、，]|, | and | or ")
_TAGS = (ACTION, ACTION_END, THINK, THINK_END)


class Fact(NamedTuple):
    """``relation: value`` on one line of a page."""

    line: int
    """Line id."""
    relation: str
    """As written."""
    value: str
    """The object as written."""
    target: str | None
    """Title that the object links to; None for text."""


def sayable(text: str) -> bool:
    """Whether a turn can quote a text: one that holds the tags of a turn would be read as something else."""
    return not any(tag in text for tag in _TAGS)


def facts_of(page: Page, shown: int) -> tuple[Fact, ...]:
    """The facts among the first ``shown`` lines, in their order."""
    stated = [_stated(line) for line in page.lines]
    times = Counter(fold(one[0]) for one in stated if one is not None)
    found = []
    for at, (line, one) in enumerate(zip(page.lines[:shown], stated, strict=False), 1):
        if one is not None and times[fold(one[0])] == 1 and sayable(line.text):
            relation, start = one
            fact = _fact(at, relation, line, start)
            found += [fact] if fact is not None else []
    return tuple(found)


def links_of(page: Page, shown: int) -> dict[str, tuple[int, str]]:
    """Title → (line id, text) of the first link to it, of the first ``shown`` lines."""
    found: dict[str, tuple[int, str]] = {}
    for at, line in enumerate(page.lines[:shown], 1):
        for link in line.links if sayable(line.text) else ():
            found.setdefault(link.title, (at, line.text[link.start : link.end]))
    return found


def _stated(line: PageLine) -> tuple[str, int] | None:
    """(relation, where its object begins)"""
    found = None if line.level else _STATED.fullmatch(line.text)
    if found is None or len(found[1].split()) > _MOST_WORDS or not any(map(str.isalpha, found[1])):
        return None
    return found[1].strip(), found.start(2)


def _fact(at: int, relation: str, line: PageLine, start: int) -> Fact | None:
    """None where the line has several objects, or more than its object."""
    value = line.text[start:]
    links = [link for link in line.links if link.end > start]
    if links:
        whole = len(links) == 1 and (links[0].start, links[0].end) == (start, len(line.text))
        return Fact(at, relation, value, links[0].title) if whole else None
    return None if len(value) > _MOST_VALUE or _SEVERAL.search(value) else Fact(at, relation, value, None)
