"""The files of an episode, and which of their lines the agent has seen as they are now.

Invariants: a workspace is an immutable value on the host, so a fork shares it; every name and text in it was checked;
a line's number is among the seen ones just where the line was shown with that number since it last changed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent_envs.code.sandbox import RunResult, check_name
from agent_envs.code.view import lines_of, text_of

_NONE: frozenset[int] = frozenset()
_MAX_NAME = 120
_NOT_IN_NAMES = frozenset('\\:*?"<>|,()（），')
"""Signs that other systems forbid, or that the actions are written with."""


class BadFile(ValueError):  # noqa: N818
    """A file that may not be here: the key of a reply, and its values."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key, self.values = key, values


@dataclass(frozen=True)
class Bounds:
    """How much there may be."""

    files: int
    file_kb: int


@dataclass(frozen=True)
class Workspace:
    """Files by name, and the numbers of the lines of each that were seen."""

    files: Mapping[str, str]
    seen: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def saw(self, name: str, numbers: Iterable[int]) -> Workspace:
        """The same, with these lines shown."""
        known = self.seen.get(name, _NONE)
        return replace(self, seen={**self.seen, name: known | frozenset(numbers)})

    def has_seen(self, name: str, first: int, last: int) -> bool:
        """Whether the lines ``first`` to ``last`` were seen; where they are none, one of those on either side."""
        known = self.seen.get(name, _NONE)
        if first > last:
            return not lines_of(self.files[name]) or last in known or first in known
        return all(number in known for number in range(first, last + 1))

    def written(self, name: str, text: str, bounds: Bounds) -> Workspace:
        """With a file that has this text. Lines before the first and after the last that differ stay seen if their
        number is the same. Raises BadFile.
        """
        check_file(name, text, bounds)
        if name not in self.files:
            if len(self.files) >= bounds.files:
                raise BadFile("full", most=bounds.files)
            if any(f"{name}/".startswith(f"{other}/") or f"{other}/".startswith(f"{name}/") for other in self.files):
                raise BadFile("name", name=name)
        before, after = lines_of(self.files.get(name, "")), lines_of(text)
        same = [i for i, (old, new) in enumerate(zip(before, after, strict=False), 1) if old == new]
        known = self.seen.get(name, _NONE) & frozenset(same)
        return Workspace({**self.files, name: text}, {**self.seen, name: known})

    def without(self, name: str) -> Workspace:
        """With one file fewer."""
        return Workspace(
            {other: text for other, text in self.files.items() if other != name},
            {other: numbers for other, numbers in self.seen.items() if other != name},
        )

    def edited(self, name: str, first: int, last: int, body: str) -> str:
        """The text of a file whose lines ``first`` to ``last`` become others; none where ``last`` = ``first`` - 1."""
        lines = lines_of(self.files[name])
        return text_of([*lines[: first - 1], *lines_of(body), *lines[last:]])


def check_file(name: str, text: str, bounds: Bounds) -> None:
    """Raises BadFile for a name or text that may not be a file's."""
    try:
        check_name(name)
    except ValueError:
        raise BadFile("name", name=name[:_MAX_NAME].encode("utf-8", "replace").decode()) from None
    if len(name) > _MAX_NAME or name != name.strip() or not name.isprintable() or _NOT_IN_NAMES & set(name):
        raise BadFile("name", name=name[:_MAX_NAME])
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadFile("unicode") from None
    if size > bounds.file_kb * 1024:
        raise BadFile("long", most=bounds.file_kb)


def syntax_error(name: str, text: str) -> tuple[int, str] | None:
    """(line, what is wrong) of a Python file that Python cannot read; None where nothing is wrong."""
    if not name.endswith(".py"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 1, f"line {error.lineno or 1}: {error.msg}"
    except (ValueError, RecursionError, MemoryError):  # a zero byte; a depth that no parser can follow
        return 1, "line 1: Python cannot read it"
    return None


def taken(now: Workspace, result: RunResult, bounds: Bounds) -> tuple[Workspace, list[str], list[str]]:
    """(files with what a program changed, names of what was kept, names of what may not be here)."""
    kept, lost = [], [_printable(name) for name in sorted(result.skipped)]
    for name in sorted(result.deleted):
        if name in now.files:
            now = now.without(name)
            kept.append(name)
    for name, data in sorted(result.files.items()):
        try:
            now = now.written(name, data.decode(), bounds)
            kept.append(name)
        except (BadFile, UnicodeDecodeError):
            lost.append(_printable(name))
    return now, kept, lost


def _printable(name: str) -> str:
    """A name that a program made, as an agent may read it."""
    return ascii(name)[1:-1][:60]
