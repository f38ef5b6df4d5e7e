"""Checks that are written as assertions, turned into cases whose expected value stays on the host.

Invariants: texts are parsed, never run, and of a text only literals become values; an assertion becomes a case only
when the value that the case expects decides just as the assertion does. What does not is named with its reason.

What becomes a case, where f is the function and v a literal: ``f(…) == v`` and ``v == f(…)``, also with an index or a
builtin function around f; ``is`` for None, True and False; ``f(…)`` and ``not f(…)``; ``abs(f(…) - v) < e`` and
``math.isclose(f(…), v)``; several of these with ``and``.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent_envs.code.task import Case, Identity

MOST_CASES = 256
_MOST_EXPRESSION = 20_000
_DEEP = 40
_BUILDERS = {"set": set, "frozenset": frozenset, "list": list, "tuple": tuple}
_AROUND = {"abs", "bool", "dict", "float", "frozenset", "int", "len", "list", "max", "min", "round", "set", "sorted",
           "str", "sum", "tuple"}  # fmt: skip
_COMPUTE = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_LARGE = 10**9
_TOO_DEEP = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


class _NoCase(Exception):  # noqa: N818
    """Why an assertion does not become a case."""


@dataclass
class Checks:
    """What became of the assertions of a task."""

    cases: list[Case] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    """Why, for each that does not become a case."""


def parse(text: str) -> ast.Module | None:
    """The tree of a text; None for what is no Python, or nested too deep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd backslashes are the author's affair
        try:
            return ast.parse(text)
        except _TOO_DEEP:
            return None


def called_check(text: str, entry: str, known: frozenset[str]) -> Checks:
    """The assertions of HumanEval's ``def check(candidate)``, of which ``entry`` is the candidate."""
    checks = Checks()
    tree = parse(text)
    check = next((f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "check"), None) if tree else None
    if check is None or len(check.args.args) != 1:
        checks.unsupported.append("no function check(candidate)")
        return checks
    _read(check.body, check.args.args[0].arg, entry, known, checks)
    return checks


def listed_checks(texts: list[str], entry: str, known: frozenset[str]) -> Checks:
    """The assertions of MBPP's list of texts."""
    checks = Checks()
    for text in texts:
        tree = parse(text)
        if tree is None:
            checks.unsupported.append("no Python")
        else:
            _read(tree.body, entry, entry, known, checks)
    return checks


def _read(body: list[ast.stmt], candidate: str, entry: str, known: frozenset[str], checks: Checks) -> None:
    seen = {_asks(case) for case in checks.cases}
    for node in body:
        if _says_nothing(node):
            continue
        try:
            if not isinstance(node, ast.Assert):
                raise _NoCase(f"{type(node).__name__.lower()} statement")
            for case in _cases(node.test, candidate, entry, known):
                if _asks(case) not in seen:
                    seen.add(_asks(case))
                    checks.cases.append(case)
            if len(checks.cases) > MOST_CASES:
                raise _NoCase(f"more than {MOST_CASES} checks")
        except _NoCase as reason:
            checks.unsupported.append(str(reason))
        except _TOO_DEEP:
            checks.unsupported.append("nested too deep")


def _asks(case: Case) -> tuple[type[Case], str, str]:
    """What two checks have in common that ask the same."""
    return type(case), case.expression, repr(case.expected)


def _says_nothing(node: ast.stmt) -> bool:
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant() | ast.Name() | ast.Call(func=ast.Name(id="print"))):
            return True
    return False


def _cases(test: ast.expr, candidate: str, entry: str, known: frozenset[str]) -> Iterator[Case]:
    if isinstance(test, ast.Constant) and test.value is True:
        return  # `assert True, "…"` says nothing
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from _cases(part, candidate, entry, known)
        return
    asked, expected, tolerance = _case(test, candidate)
    kind = Identity if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) else Case
    yield kind("main", _expression(asked, candidate, entry, known), expected, tolerance)


def _case(test: ast.expr, candidate: str) -> tuple[ast.expr, Any, float]:
    """(what is evaluated, what it should give, by how much it may differ)."""
    match test:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
            match left:
                case ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(op=ast.Sub(), left=a, right=b)], keywords=[]):
                    asked, expected = _sides(a, b, candidate)
                    return asked, _real(expected), _width(_literal(right))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return *_sides(left, right, candidate), 0.0
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None | True | False) as right]):
            return left, right.value, 0.0
        case ast.Call(func=ast.Name(id="isclose") | ast.Attribute(attr="isclose", value=ast.Name(id="math"))):
            return _close(test, candidate)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _truth(operand), False, 0.0
        case ast.Call(func=ast.Name(id=name)) if name == candidate:
            return _truth(test), True, 0.0
    raise _NoCase("no comparison of a call with a literal")


def _sides(left: ast.expr, right: ast.expr, candidate: str) -> tuple[ast.expr, Any]:
    if not _uses(left, candidate):
        left, right = right, left
    return left, _literal(right)


def _uses(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _truth(node: ast.expr) -> ast.expr:
    return ast.Call(func=ast.Name(id="bool", ctx=ast.Load()), args=[node], keywords=[])


def _close(call: ast.Call, candidate: str) -> tuple[ast.expr, Any, float]:
    if len(call.args) != 2 or any(word.arg not in ("rel_tol", "abs_tol") for word in call.keywords):
        raise _NoCase("isclose with other arguments")
    asked, expected = _sides(call.args[0], call.args[1], candidate)
    number = _real(expected)
    width = {"rel_tol": 1e-9, "abs_tol": 0.0} | {str(word.arg): _width(_literal(word.value)) for word in call.keywords}
    return asked, number, max(width["rel_tol"] * abs(number), width["abs_tol"])


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _NoCase("a tolerance about something that is not a number")
    return value


def _width(value: Any) -> float:
    if not 0 <= _real(value) <= 1:
        raise _NoCase("a tolerance outside 0 to 1")
    return float(value)


def _literal(node: ast.expr) -> Any:
    """Its value, where it is a literal, sums and products of numbers included, or one of `_BUILDERS` of a literal."""
    builder = None
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _BUILDERS:
            builder, node = _BUILDERS[name], inner
    try:
        value = ast.literal_eval(_Computed().visit(node))
        value = builder(value) if builder else value
    except _TOO_DEEP:
        raise _NoCase("compared with something that is not a literal") from None
    if not plain(value):
        raise _NoCase("compared with a value that is too large, or no number")
    return value


def plain(value: Any, depth: int = _DEEP) -> bool:
    """Whether it is a value that can come out of a sandbox, and is equal to itself."""
    if isinstance(value, dict):
        return depth > 0 and all(plain(key, depth - 1) and plain(item, depth - 1) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return depth > 0 and all(plain(item, depth - 1) for item in value)
    return value is not Ellipsis and bool(value == value)


def _expression(node: ast.expr, candidate: str, entry: str, known: frozenset[str]) -> str:
    if not _uses(node, candidate):
        raise _NoCase("the function is not called")
    if not _is_value(node, candidate):
        raise _NoCase("something that would be decided beside the submission")
    own = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    own |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    free = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - own - known - set(dir(builtins))
    if free - {candidate, entry}:
        raise _NoCase(f"a name that is set in the test: {min(free - {candidate, entry})[:40]}")
    renamed = _Renamed(candidate, entry).visit(node)
    text = ast.unparse(ast.fix_missing_locations(renamed))
    if len(text) > _MOST_EXPRESSION:
        raise _NoCase(f"a call of more than {_MOST_EXPRESSION} characters")
    return text


def _is_value(node: ast.expr, candidate: str) -> bool:
    """Whether it is a call of the candidate, a part of its result, or a builtin function of that.

    Whatever else is asked could hold the expected value, or be won by objects that equal anything.
    """
    match node:
        case ast.Call(func=ast.Name(id=name)) if name == candidate:
            return True
        case ast.Subscript(value=value):
            return _is_value(value, candidate)
        case ast.Call(func=ast.Name(id="round"), args=[value, ast.Constant()], keywords=[]):
            return _is_value(value, candidate)
        case ast.Call(func=ast.Name(id=name), args=[value], keywords=words) if name in _AROUND:
            return _is_value(value, candidate) and all(word.arg in ("key", "reverse") for word in words)
    return False


class _Computed(ast.NodeTransformer):
    """Puts its value in the place of every sum, difference, product and quotient of two numbers."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as a)):
                return ast.Constant(-a)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.BinOp(
                left=ast.Constant(value=int() | float() as a), right=ast.Constant(value=int() | float() as b)
            ):
                compute = _COMPUTE.get(type(node.op))
                if compute and abs(a) < _LARGE and abs(b) < _LARGE and (b or compute is not operator.truediv):
                    return ast.Constant(compute(a, b))
        return node


class _Renamed(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(id=self._new, ctx=node.ctx) if node.id == self._old else node
