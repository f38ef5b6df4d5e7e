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

from agent_envs.actions import ACTION, THINK, THINK_END
from agent_envs.code.expert import changed, replaced
from agent_envs.code.hunks import hunks
from agent_envs.code.lexicon import identifiers
from agent_envs.code.snippets import snippet

_MOST = 6
"""Most changes in an exercise."""


@dataclass(frozen=True)
class Exercise:
    """A text, and turns that change it: (what is given of a turn, the rest)."""

    text: str
    turns: Sequence[tuple[str, str]]


def exercise(text: str, solution: str, rng: np.random.Generator, name: str = "") -> Exercise:
    """A program with a bug: its repair, which is to be found, and other small changes, of which the beginning is told.

    ``name`` is that of the file where there are several. No turn where nothing can be changed.
    """
    others = [other for other in changed(text) if snippet(text, hunks(text, other)[0]) is not None]
    picks = [others[int(i)] for i in rng.permutation(len(others))[: _MOST - 1]]
    text, solution, *picks = renamed((text, solution, *picks), rng)
    turns = []
    for wanted in (solution, *picks):
        found = hunks(text, wanted)
        step = replaced(text, found[0], name) if len(found) == 1 else None
        if step is None:
            continue
        given = f"{THINK}{THINK_END}{ACTION}{step.verb}("
        if wanted is not solution:
            given += f"{step.args})\n"
        turns.append((given, step.turn().removeprefix(given)))
    return Exercise(text, turns)


def renamed(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The texts with other names, the same in all of them."""
    names = sorted(set().union(*map(_names, texts[:2])))
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
