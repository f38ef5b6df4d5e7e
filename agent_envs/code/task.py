"""A coding task. Invariant: an expected value is a plain literal and stays on the host."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Literal = Any
"""A value that `ast.literal_eval` gives: None, bool, numbers, str, bytes, and tuples, lists, sets and dicts of them."""


@dataclass(frozen=True)
class Case:
    """One check: an expression, evaluated in the sandbox beside a module of the submission, gives this value."""

    module: str
    """The module whose names the expression sees, `main` for `main.py`."""
    expression: str
    """What is evaluated, for instance `rotate([1, 2, 3], 1)`. No secret: it is sent into the sandbox."""
    expected: Literal
    """What it should give. Compared on the host."""
    tolerance: float = 0.0
    """By how much a number may differ from the expected one; 0 asks for the same value."""


@dataclass(frozen=True)
class Identity(Case):
    """A check that wants that very object, None, True or False: 1 and 1.0 are equal to True, and are not True."""

    identical: bool = True
    """For the record: a task's hash tells it from a check that two values are equal."""


@dataclass(frozen=True)
class CodeTask:
    """A folder of files, what is wanted of it, and what is checked."""

    statement: str
    """What the agent is told, without the files."""
    files: Mapping[str, str]
    """Name → text of the files at the beginning."""
    visible: tuple[Case, ...]
    """Checks that the agent sees and may run."""
    hidden: tuple[Case, ...]
    """Checks that pay; disjoint from the visible ones."""
    solution: Mapping[str, str] = field(default_factory=dict)
    """Name → text of the files that a known solution changes; empty where none is known."""
    grader: str = ""
    """For tasks whose checks are no cases: a program that is run beside the submission, in its own process; exit
    status 0 passes. A submission can forge that."""
