"""Rows in the formats of HumanEval, MBPP and EvalPlus, and how each is checked.

Invariant: which manner a row has is told by its fields alone; a row of none of them is an error that says what is
missing. Texts are parsed, never run.

    HumanEval   prompt, entry_point, canonical_solution, test: a text with ``def check(candidate)``
    MBPP        text or prompt, code, test_list, and test_setup_code or test_imports, challenge_test_list
    EvalPlus    prompt, entry_point, canonical_solution, base_input, plus_input, atol: results are not given
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from agent_envs.code.tasks.asserts import Checks, called_check, listed_checks, parse
from agent_envs.core import SettingsError
from agent_envs.rows import Row, text_of

MOST_INPUTS = 64
"""Inputs of an EvalPlus row that are used: its own first, then those that were added."""
_MOST_EXPRESSION = 20_000


@dataclass(frozen=True)
class Known:
    """A row as it was read."""

    text: str
    """What is asked for."""
    start: str
    """`main.py` at the beginning."""
    solution: str
    """`main.py` as the source has it solved."""
    checks: Checks = field(default_factory=Checks)
    calls: tuple[str, ...] = ()
    """Expressions whose values the solution has to tell."""
    left_out: int = 0
    """Inputs that were not used: too many, too long, or no Python."""
    tolerance: float = 0.0
    """By how much floating-point results may differ from what the solution tells."""
    grader: str = ""
    """The source's own test as a program beside `main.py`."""


def read(row: Row, where: str) -> Known:
    """Raises SettingsError for a row of another manner."""
    if "test_list" in row:
        return _mbpp(row, where)
    if "entry_point" not in row:
        raise SettingsError(f"{where} has neither 'entry_point' (HumanEval, EvalPlus) nor 'test_list' (MBPP)")
    prompt, entry = text_of(row, ("prompt",), where), _name(row, where)
    solution = _lines(prompt + text_of(row, ("canonical_solution",), where))
    if "base_input" in row:
        return _evalplus(row, where, prompt, entry, solution)
    test = text_of(row, ("test",), where)
    grader = f"from main import *\nfrom main import {entry}\n{test}\ncheck({entry})\n"
    checks = called_check(test, entry, _defined(prompt))
    return Known(prompt.strip(), _lines(prompt), solution, checks, grader=grader)


def _mbpp(row: Row, where: str) -> Known:
    text = text_of(row, ("text", "prompt"), where).strip()
    code = _lines(text_of(row, ("code",), where))
    setup = text_of(row, ("test_setup_code",), where, needed=False) or "\n".join(_texts(row, "test_imports", where))
    tests = [*_texts(row, "test_list", where), *_texts(row, "challenge_test_list", where)]
    setup = _lines(setup) if setup.strip() else ""
    function = _tested(code, tests)
    if function is None:
        raise SettingsError(f"{where}: no function of 'code' is called in 'test_list'")
    try:
        head = f"{function.name}({ast.unparse(function.args)})"
    except RecursionError as error:
        raise SettingsError(f"{where}: the arguments of {function.name[:40]} are nested too deep") from error
    checks = listed_checks(tests, function.name, _defined(setup))
    grader = "\n".join(["from main import *", f"from main import {function.name}", setup, *tests, ""])
    return Known(f"{text}\n{head}", f"{setup}def {head}:\n    pass\n", setup + code, checks, grader=grader)


def _evalplus(row: Row, where: str, prompt: str, entry: str, solution: str) -> Known:
    inputs = [*_inputs(row, "base_input", where), *_inputs(row, "plus_input", where)]
    calls: dict[str, None] = {}
    for given in inputs:
        call = _call(entry, given)
        if call and len(calls) < MOST_INPUTS:
            calls[call] = None
    atol = row.get("atol", 0)
    if isinstance(atol, bool) or not isinstance(atol, int | float) or not 0 <= atol <= 1:
        raise SettingsError(f"{where}: 'atol' must be a number from 0 to 1")
    left_out = len(inputs) - len(calls)
    tolerance = max(float(atol), 1e-6)
    return Known(prompt.strip(), _lines(prompt), solution, Checks(), tuple(calls), left_out, tolerance)


def _call(entry: str, given: list[Any]) -> str:
    """The call with these arguments; "" where Python cannot write or read it."""
    try:
        text = f"{entry}({', '.join(map(repr, given))})"
    except RecursionError:
        return ""
    tree = parse(text) if len(text) <= _MOST_EXPRESSION else None
    # JSON may hold NaN and Infinity, which Python does not write as it reads them.
    odd = tree is None or any(isinstance(node, ast.Name) and node.id in ("nan", "inf") for node in ast.walk(tree))
    return "" if odd else text


def _inputs(row: Row, key: str, where: str) -> list[list[Any]]:
    value = row.get(key, [])
    if value in ("", {}, None):  # so are none written
        return []
    if not isinstance(value, list) or not all(isinstance(given, list) for given in value):
        raise SettingsError(f"{where}: {key!r} must be a list of lists of arguments")
    return value


def _texts(row: Row, key: str, where: str) -> list[str]:
    value = row.get(key) or []
    if not isinstance(value, list):
        raise SettingsError(f"{where}: {key!r} must be a list of texts")
    return [text_of({key: text}, (key,), where) for text in value]


def _name(row: Row, where: str) -> str:
    entry = text_of(row, ("entry_point",), where)
    if not entry.isidentifier() or not entry.isascii():
        raise SettingsError(f"{where}: 'entry_point' must be the name of a function")
    return entry


def _lines(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _defined(text: str) -> frozenset[str]:
    """Names that a text sets at its top level."""
    result = set()
    tree = parse(text)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            result.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            result |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            result |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(result)


def _tested(code: str, tests: list[str]) -> ast.FunctionDef | None:
    """The function of ``code`` that the tests call first."""
    tree = parse(code)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} if tree else {}
    for test in map(parse, tests):
        for node in ast.walk(test) if test else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
                return functions[node.func.id]
    return None
