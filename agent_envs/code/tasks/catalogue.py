"""All references of the library, as programs: files, statements, and a pool of checks for each.

Invariant: a program's pool is drawn from its name alone, so it is the same everywhere; what it expects is what the
unchanged reference gives. References are run here, in this process: they are this package's own code.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from random import Random
from types import ModuleType
from typing import Any

from agent_envs.code.task import Case
from agent_envs.code.tasks.reference import Inputs, about
from agent_envs.splits import hashed_split

FAMILIES = (
    "letters", "words", "strings", "lists", "order", "sums", "places", "nested", "numbers", "digits", "divisors",
    "mappings", "counts", "recursion", "classes", "machines", "built_train", "built_valid", "built_test",
    "times", "money", "pairs", "boards", "spans", "layout", "codes", "series", "games", "compare",
)  # fmt: skip
POOL, LEAST_POOL = 24, 16
_FILES = ("main", "helper", "other")
_DRAWS = 1000
_SALT = 2428
"""With it every family has its part in every split."""


@dataclass(frozen=True, eq=False)
class Program:
    """One reference, with those that it uses in files of their own."""

    code: Any
    """The reference."""
    family: str
    split: str
    """"train", "valid" or "test": the name's own hash decides."""
    files: Mapping[str, str]
    """Name → text; `main.py` holds the reference."""
    statements: Mapping[str, Mapping[str, str]]
    """Name of a file → language → what the reference in it does."""
    signatures: Mapping[str, str]
    """Name of a file → what stands in it, as one calls it: `rotate(items, step)`."""

    @property
    def name(self) -> str:
        return str(self.code.__name__)

    @property
    def lines(self) -> int:
        """How many lines of code its files have."""
        return sum(bool(line.strip()) for text in self.files.values() for line in text.splitlines())

    @cached_property
    def pool(self) -> tuple[Case, ...]:
        """Different checks of `main`, at least `LEAST_POOL`; no value is expected by more than half of them."""
        told = about(self.code)
        assert told is not None
        return _pool(self.name, self.code, told.inputs)

    @cached_property
    def digest(self) -> str:
        """Changes with the files or the pool."""
        content = repr((sorted(self.files.items()), [(case.expression, case.expected) for case in self.pool]))
        return hashlib.sha256(content.encode()).hexdigest()[:12]


@cache
def programs() -> Mapping[str, Program]:
    """Name → program, in the order of the library. Raises ValueError where two references have one name."""
    result: dict[str, Program] = {}
    for family in FAMILIES:
        module = import_module(f"agent_envs.code.tasks.programs.{family}")
        for name in _texts(module):
            if name in result:
                raise ValueError(f"{family} and {result[name].family} both have a reference {name}: rename one")
            result[name] = _program(getattr(module, name), family)
    return result


@cache
def _texts(module: ModuleType) -> Mapping[str, str]:
    """Name → text of every reference that stands in a module, from `def` or `class` on."""
    source = inspect.getsource(module)
    result = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and about(getattr(module, node.name)):
            lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
            result[node.name] = "\n".join(lines) + "\n"
    return result


def _text(code: Any) -> str:
    return _texts(import_module(code.__module__))[code.__name__]


def _program(code: Any, family: str) -> Program:
    parts = _parts(code)
    files, statements, signatures = {}, {}, {}
    for part, file in parts.items():
        said = about(part)
        assert said is not None
        imports = "".join(f"from {parts[used]} import {used.__name__}\n" for used in said.uses)
        files[f"{file}.py"] = f"{imports}\n\n{_text(part)}" if imports else _text(part)
        statements[f"{file}.py"] = said.statement
        signatures[f"{file}.py"] = _signature(part)
    return Program(code, family, split_of(code), files, statements, signatures)


def split_of(code: Any) -> str:
    """The split of a reference: that of its name, and of a program the one of what it is built on."""
    told = about(code)
    assert told is not None
    return split_of(told.uses[0]) if told.uses else hashed_split(f"{_SALT}{code.__name__}")


def _parts(code: Any) -> dict[Any, str]:
    """Every reference that takes part, with its file's name; ``code`` itself is in `main`."""
    result: dict[Any, str] = {}
    waiting = [code]
    while waiting:
        part = waiting.pop(0)
        if part not in result:
            result[part] = _FILES[len(result)]
            told = about(part)
            assert told is not None
            waiting += told.uses
    return result


def _signature(code: Any) -> str:
    return f"{code.__name__}({', '.join(inspect.signature(code).parameters)})"


def _pool(name: str, code: Any, inputs: Inputs) -> tuple[Case, ...]:
    rng = Random(f"code-{name}")
    result: dict[str, Case] = {}
    often: Counter[str] = Counter()
    for _ in range(_DRAWS):
        expression = f"{name}{inputs(rng)}"
        if expression in result:
            continue
        # No text of a stranger: name and arguments are the library's own.
        case = Case("main", expression, eval(expression, {name: code}))
        # Who always gives the same shall not be right too often.
        if often[repr(case.expected)] < POOL // 2:
            result[expression] = case
            often[repr(case.expected)] += 1
        if len(result) == POOL:
            break
    return tuple(result.values())
