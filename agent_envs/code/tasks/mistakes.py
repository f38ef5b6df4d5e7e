"""The operators of mutation, one function each: from a node to the edits that make it a mistake of that kind.

Invariant: an operator looks at the text and the tree only, and each edit stays within one line. An edit that gives no
Python is harmless: it is dropped later.

To add one: name it in `Operator`, write the function, and put it into `OPERATORS`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from agent_envs.code.tasks.settings import Operator
from agent_envs.code.tasks.text import Loop, Text

Edit = tuple[int, int, str]
Find = Callable[[Text, ast.AST], Iterator[Edit]]

_SIGNS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in",
    ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
_BOUNDARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_OPPOSITE = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "!=", "!=": "==", "in": "not in", "not in": "in"}
_ARITHMETIC = {"+": ("-", "*"), "-": ("+",), "*": ("+",), "//": ("%", "*"), "%": ("//",)}
_METHODS = {
    "append": "extend", "extend": "append", "endswith": "startswith", "find": "count", "insert": "append",
    "isdigit": "isalpha", "keys": "values", "lower": "upper", "startswith": "endswith", "upper": "lower",
    "values": "keys",
}  # fmt: skip
_BUILTINS = {"abs": "int", "int": "len", "len": "sum", "list": "sorted", "max": "min", "min": "max", "sorted": "list",
             "sum": "max"}  # fmt: skip
_SIMPLE = ast.Assign | ast.AugAssign | ast.Expr | ast.Return
_OTHERS = 1
"""So many other variables are put in the place of one."""


def _sign(text: Text, left: ast.AST, op: ast.AST, right: ast.AST, new: str) -> Iterator[Edit]:
    old = _SIGNS[type(op)]
    begin, gap = text.gap(left, right)
    at = gap.find(old)
    if at >= 0:
        yield begin + at, begin + at + len(old), new


def _compared(text: Text, node: ast.AST, table: dict[str, str]) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            new = table.get(_SIGNS.get(type(op), ""))
            if new:
                yield from _sign(text, left, op, right, new)
            left = right


def boundary(text: Text, node: ast.AST) -> Iterator[Edit]:
    return _compared(text, node, _BOUNDARY)


def compare(text: Text, node: ast.AST) -> Iterator[Edit]:
    return _compared(text, node, _OPPOSITE)


def arithmetic(text: Text, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp):
        left, right = node.left, node.right
    elif isinstance(node, ast.AugAssign):
        left, right = node.target, node.value
    else:
        return
    for new in _ARITHMETIC.get(_SIGNS.get(type(node.op), ""), ()):
        yield from _sign(text, left, node.op, right, new)


def _number(node: ast.AST | None) -> int | None:
    """The whole number that it says; None for anything else."""
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _near(number: int, low: int = 0) -> list[str]:
    """One more and one less, but nothing below ``low``."""
    return [str(value) for value in (number + 1, number - 1) if value >= low]


def _first_value(text: Text, node: ast.AST) -> bool:
    """Whether it is what a variable begins with."""
    parent = text.parent(node)
    while isinstance(parent, ast.Tuple | ast.List | ast.BinOp):
        parent = text.parent(parent)
    return isinstance(parent, ast.Assign) and not text.in_loop(node)


def constant(text: Text, node: ast.AST) -> Iterator[Edit]:
    number = _number(node)
    if number is not None and not _first_value(text, node) and not text.above(node, ast.Subscript):
        for value in _near(number):
            yield text.start(node), text.end(node), value


def initial(text: Text, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Constant | ast.List) or not _first_value(text, node):
        return
    begin, end = text.start(node), text.end(node)
    if isinstance(node, ast.List):
        if not node.elts:
            yield begin, end, "[0]"
    elif isinstance(node.value, bool):
        yield begin, end, str(not node.value)
    elif isinstance(node.value, int):
        for value in _near(node.value):
            yield begin, end, value
    elif node.value == "":
        yield begin, end, '"-"'


def negate(text: Text, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.If | ast.While | ast.IfExp):
        return
    test = node.test
    begin, end, said = text.start(test), text.end(test), text.of(test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield begin, end, text.of(test.operand)
    elif isinstance(test, ast.BoolOp):
        yield begin, end, f"not ({said})"
    elif not isinstance(test, ast.Compare) or _SIGNS.get(type(test.ops[0])) in _BOUNDARY:
        yield begin, end, f"not {said}"


def logic(text: Text, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            begin, gap = text.gap(left, right)
            begin += gap.index(old)
            yield begin, begin + len(old), new


def variable(text: Text, node: ast.AST) -> Iterator[Edit]:
    if isinstance(text.parent(node), ast.Return):
        return  # that is another value given back
    yield from _other_variable(text, node)


def _other_variable(text: Text, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        known, begin, name = text.names(node), text.start(node), node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        known, name = text.attributes(node), node.attr
        begin = text.end(node) - len(name)
    else:
        return
    if name in known:
        at = known.index(name)
        # Those that come next, in a ring: which ones differs from name to name.
        for other in (known[at + 1 :] + known[:at])[:_OTHERS]:
            yield begin, begin + len(name), other


def arguments(text: Text, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and len(node.args) > 1:
        left, right = node.args[:2]
    elif isinstance(node, ast.BinOp):
        left, right = node.left, node.right
    else:
        return
    gap = text.gap(left, right)[1]
    if "(" not in gap and ")" not in gap:
        yield text.start(left), text.end(right), text.of(right) + gap + text.of(left)


def index(text: Text, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Subscript):
        return
    at = node.slice
    if not isinstance(at, ast.Slice):
        yield from _other_place(text, at)
        return
    for part in (at.lower, at.upper, at.step):
        if part is not None:
            yield from _other_place(text, part)
    for part in (at.lower, at.upper):
        if part is not None and at.step is None:
            begin, end = text.start(part), text.end(part)
            # "[1:-1]" becomes "[:-1]", and "[:size]" becomes "[size:]".
            yield begin, end, ""
            if part is at.lower and at.upper is None:
                yield begin, text.end(node) - 1, f":{text.of(part)}"
            elif part is at.upper and at.lower is None:
                yield text.start(node.value) + len(text.of(node.value)) + 1, end, f"{text.of(part)}:"


def _other_place(text: Text, node: ast.expr) -> Iterator[Edit]:
    begin, end = text.start(node), text.end(node)
    number = _number(node)
    if number is None and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = _number(node.operand)
        number = None if below is None else -below
    if number is not None:
        for value in _near(number, -9):
            yield begin, end, value
    elif isinstance(node, ast.BinOp) and _number(node.right) is not None:
        yield begin, end, text.of(node.left)
    elif isinstance(node, ast.Name):
        for change in ("+ 1", "- 1"):
            yield begin, end, f"{node.id} {change}"


def method(text: Text, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Call):
        return
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in _METHODS:
        end = text.end(called)
        yield end - len(called.attr), end, _METHODS[called.attr]
    elif isinstance(called, ast.Name) and called.id in _BUILTINS:
        yield text.start(called), text.end(called), _BUILTINS[called.id]


def returned(text: Text, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Return) or node.value is None:
        return
    value = node.value
    begin, end = text.start(value), text.end(value)
    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
        yield begin, end, str(not value.value)
    elif _number(value) is not None:
        yield begin, end, "1" if _number(value) == 0 else "0"
    elif isinstance(value, ast.UnaryOp):
        yield begin, end, text.of(value.operand) if _number(value.operand) is None else "0"
    elif isinstance(value, ast.BinOp):
        yield begin, end, text.of(value.left)
        yield begin, end, text.of(value.right)
    elif isinstance(value, ast.BoolOp):
        yield begin, end, text.of(value.values[0])
        yield begin, end, text.of(value.values[-1])
    elif isinstance(value, ast.Call) and value.args:
        yield begin, end, text.of(value.args[-1])
    elif isinstance(value, ast.Name) and value.id != "self":
        yield from _other_variable(text, value)
    if text.parent(node) is not text.above(node, ast.FunctionDef):
        yield text.start(node), end, "return"


def remove(text: Text, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, _SIMPLE) or node.lineno != node.end_lineno:
        return
    if len(_block(text, node)) == 1:
        yield text.start(node), text.end(node), "pass"
    else:
        yield *text.line(node), ""


def indent(text: Text, node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, _SIMPLE) or node.lineno != node.end_lineno:
        return
    block = _block(text, node)
    at = block.index(node)
    begin = text.line(node)[0]
    if at and isinstance(block[at - 1], ast.If | Loop):
        yield begin, begin, "    "
    owner = text.parent(node)
    if at and at == len(block) - 1 and isinstance(owner, ast.If | Loop):
        yield begin, begin + 4, ""


def _block(text: Text, node: ast.AST) -> list[ast.stmt]:
    """The statements that it stands among."""
    owner = text.parent(node)
    blocks = [block for _, block in ast.iter_fields(owner) if isinstance(block, list)] if owner else []
    return next(block for block in blocks if node in block)


def jump(text: Text, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Break | ast.Continue):
        yield text.start(node), text.end(node), "continue" if isinstance(node, ast.Break) else "break"


OPERATORS: dict[Operator, Find] = {
    Operator.BOUNDARY: boundary,
    Operator.COMPARE: compare,
    Operator.ARITHMETIC: arithmetic,
    Operator.CONSTANT: constant,
    Operator.INITIAL: initial,
    Operator.NEGATE: negate,
    Operator.LOGIC: logic,
    Operator.VARIABLE: variable,
    Operator.ARGUMENTS: arguments,
    Operator.INDEX: index,
    Operator.METHOD: method,
    Operator.RETURN: returned,
    Operator.REMOVE: remove,
    Operator.INDENT: indent,
    Operator.JUMP: jump,
}
