"""Exercises in reading and changing lines, from which a small model learns both.

Invariant: a text that is exercised on has names of its own, drawn from words that programs are written with: what
stands in its lines cannot be known by heart, it has to be read. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agent_envs.actions import render
from agent_envs.code.expert import changed, replaced
from agent_envs.code.hunks import hunks
from agent_envs.code.lexicon import identifiers
from agent_envs.code.replies import say
from agent_envs.code.snippets import snippet
from agent_envs.code.view import echoed, lines_of, numbered
from agent_envs.core import Drill, Exercise

_MOST = 4
"""Most attempts before the last repair."""


@dataclass(frozen=True)
class Place:
    """Where the exercised text stands, and how much of it is shown after a change."""

    name: str
    alone: bool
    """Whether it is the only file."""
    echo: int
    language: str


def exercise(text: str, solution: str, place: Place, rng: np.random.Generator) -> Drill:
    """A program with a bug, and small changes that do not mend it, each taken back; before and after each of them, the
    repair is asked for. Of the attempts the line is told. There are no turns where a repair is no change of a part of a
    line.
    """
    if not _in_one_part(text, solution):
        return text, []
    others = [other for other in changed(text) if other != solution and _in_one_part(text, other)]
    picks = [others[int(i)] for i in rng.permutation(len(others))[: rng.integers(_MOST + 1)]]
    text, *tried, solution = renamed((text, *picks, solution), rng)
    repair = Exercise("", _turn(text, solution, place), aside=True)
    turns = [repair]
    for wanted in tried:
        lines = lines_of(wanted)
        around = echoed(lines, hunks(text, wanted)[0].first, 1, place.echo)
        edited = f"{say('edited', place.language)}\n{numbered(lines, around.start, around.stop - 1)}"
        undone = say("undone", place.language, names=place.name)
        given, line_end, told = _turn(text, wanted, place).partition("\n")
        turns += [Exercise(given + line_end, told, edited), Exercise(render("UNDO"), "", undone), repair]
    return text, turns


def _turn(text: str, wanted: str, place: Place) -> str:
    step = replaced(text, hunks(text, wanted)[0], "" if place.alone else place.name)
    assert step is not None, "other names leave a part of a line one"
    return step.turn()


def _in_one_part(text: str, other: str) -> bool:
    found = hunks(text, other)
    return len(found) == 1 and snippet(text, found[0]) is not None


def renamed(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The texts with other names, the same in all of them."""
    names = sorted(_names(texts[0]) | _names(texts[-1]))
    if not names:
        return list(texts)
    pool = identifiers()
    picks = rng.choice(len(pool), size=len(names), replace=False)
    new = {name: pool[int(i)] for name, i in zip(names, picks, strict=True)}
    pattern = re.compile(r"\b(?:" + "|".join(sorted(names, key=len, reverse=True)) + r")\b")
    return [pattern.sub(lambda found: new[found[0]], text) for text in texts]


@lru_cache(maxsize=8192)
def _names(text: str) -> frozenset[str]:
    """Functions, classes, arguments and variables of a program; none of what is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if not name.startswith("__"):
                found.add(name)
            case ast.arg(arg=name) if name != "self":
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return frozenset(found)
