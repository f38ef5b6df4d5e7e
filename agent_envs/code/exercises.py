"""Exercises in reading and changing lines, from which a small model learns both.

Invariant: half of the texts that are exercised on have names of their own, drawn from words that programs are written
with: what stands in their lines cannot be known by heart, it has to be read. The other half keep theirs: what is called
`total` is mostly what is returned. Nothing is run.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agent_envs.actions import render
from agent_envs.code.expert import changed, replacing, shortest
from agent_envs.code.hunks import Hunk, hunks, pieces, snippet
from agent_envs.code.lexicon import identifiers
from agent_envs.code.replies import say
from agent_envs.code.view import echoed, lines_of, numbered, standing, text_of
from agent_envs.code.workspace import syntax_error
from agent_envs.core import Drill, Exercise

_MOST = 4
"""Most bugs of a text."""
_RENAMED = 0.5
"""Share of the texts that get other names."""
_MISSED = 0.5
"""Share of the changes before which one was tried that came to nothing; and so before each of those."""


@dataclass(frozen=True)
class Place:
    """Where the exercised text stands, how much of it is shown after a change, and what its checks might say."""

    name: str
    alone: bool
    """Whether it is the only file."""
    echo: int
    language: str
    checks: int
    """How many a look at them shows."""
    values: tuple[str, ...]
    """What their expressions might give."""


def exercise(text: str, solution: str, place: Place, rng: np.random.Generator) -> Drill:
    """A program with a bug and up to three others, which are mended in any order, each by itself: as checks still fail,
    what was mended is taken back. So what was tried already is not what is to be tried next. There are no turns where
    the bug of the task is not one of a single line.

    As in an episode a look at the checks is before and after each, which says anything, and now and then a change that
    missed.
    """
    right = lines_of(solution)
    bugs = _mistaken(text, solution)
    others = changed(solution)
    if not bugs or not others:
        return text, []
    for i in rng.integers(len(others), size=rng.integers(_MOST)):
        more = _mistaken(others[i], solution)
        if more.keys() - bugs.keys() and _is_python(worse := _with(right, bugs | more)):
            text, bugs = worse, bugs | more
    mended = [_with(right, {at: line for at, line in bugs.items() if at != cured}) for cured in bugs]
    mended = [other for other in mended if _is_python(other) and shortest(text, hunks(text, other)[0])]
    if not mended:
        return text, []
    tried = [_with(right, bugs | _mistaken(others[i], solution)) for i in rng.integers(len(others), size=len(mended))]
    if rng.random() < _RENAMED:
        text, *both = renamed([text, *mended, *tried], rng)
        mended, tried = both[: len(mended)], both[len(mended) :]
        if text in mended:  # a new name is that of something which has kept its own
            return text, []
    turns = _look(place, rng)
    for i in rng.permutation(len(mended)):
        while rng.random() < _MISSED:
            turns += _missed(text, mended[i] if rng.random() < 0.5 else tried[i], place, rng)
        hunk, lines = hunks(text, mended[i])[0], lines_of(mended[i])
        step = shortest(text, hunk, "" if place.alone else place.name)
        assert step is not None, "other names leave a part of a line one"
        around = echoed(lines, hunk.first, 1, place.echo)
        edited = f"{say('edited', place.language)}\n{numbered(lines, around.start, around.stop - 1)}"
        turns += [Exercise("", step.turn(), edited), *_look(place, rng)]
        turns.append(Exercise("", render("UNDO"), say("undone", place.language, names=place.name)))
    return text, turns


def _look(place: Place, rng: np.random.Generator) -> list[Exercise]:
    """A look at checks of which some fail. Nothing is run: each says anything that one of them might."""
    if not place.checks:
        return []
    passed = rng.permutation(place.checks) < rng.integers(place.checks)
    rows = []
    for number, right in enumerate(passed, 1):
        got = place.values[rng.integers(len(place.values))]
        rows.append(say("ok" if right else "wrong", place.language, number=number, got=got))
    rows.append(say("passed", place.language, passed=int(passed.sum()), total=place.checks))
    return [Exercise(render("TEST"), "", "\n".join(rows))]


def _missed(text: str, other: str, place: Place, rng: np.random.Generator) -> list[Exercise]:
    """A change that came to nothing: of a line that does not hold what the ``other`` text has changed, of what stands
    in its line more than once, or of something into itself. No turn where the text has no place for that."""
    change, lines = _part(text, other), lines_of(text)
    if not change:
        return []
    _, old, new = change
    parts = ((n, part) for n, line in enumerate(lines, 1) for part in dict.fromkeys(pieces(line)) if part.strip())
    match rng.integers(3):
        case 0:
            result = [(n, old, new) for n, line in enumerate(lines, 1) if old not in line]
        case 1:
            result = [(n, part, new) for n, part in parts if lines[n - 1].count(part) > 1]
        case _:
            result = [(n, part, part) for n, part in parts if lines[n - 1].count(part) == 1]
    if not result:
        return []
    number, old, new = result[rng.integers(len(result))]
    step = replacing(number, old, new, "" if place.alone else place.name)
    return [Exercise(step.turn(), "", _refusal(lines, number, old, place.language))]


def _refusal(lines: Sequence[str], number: int, old: str, language: str) -> str:
    """What is answered where the line does not hold a text once; and where it does, and becomes what it is."""
    match lines[number - 1].count(old):
        case 0:
            return "\n".join([say("notfound", language), *(numbered(lines, at, at) for at in standing(lines, old))])
        case 1:
            return say("same", language)
        case many:
            return say("matches", language, matches=many)


def _part(text: str, other: str) -> tuple[int, str, str] | None:
    """(line, old part, new part) of a change that has one part of one line."""
    result = hunks(text, other)
    parts = snippet(text, result[0]) if len(result) == 1 else None
    return parts and (result[0].first, *parts)


def _mistaken(text: str, solution: str) -> dict[int, str | None]:
    """Index of the line of the solution which alone differs → what it is in the text, None where that does not have it;
    nothing where more differs."""
    match hunks(text, solution):
        case (Hunk(first=first, last=last, lines=(_,)),) if last <= first:
            return {first - 1: lines_of(text)[first - 1] if last == first else None}
    return {}


def _with(right: Sequence[str], bugs: Mapping[int, str | None]) -> str:
    """The solution of these lines with some of them changed, or left out."""
    lines = (bugs.get(at, line) for at, line in enumerate(right))
    return text_of([line for line in lines if line is not None])


def _is_python(text: str) -> bool:
    return syntax_error("main.py", text) is None


def renamed(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The texts with other names, the same in all of them."""
    names = sorted(frozenset().union(*map(_names, texts)))
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
    result = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if not name.startswith("__"):
                result.add(name)
            case ast.arg(arg=name) if name != "self":
                result.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                result.add(name)
    return frozenset(result)
