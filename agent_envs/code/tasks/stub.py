"""Stubs of programs that are to be written: signatures with empty bodies.

Invariant: a stub gives nothing that a check expects: its functions return None, its objects hold nothing.
"""

from __future__ import annotations

import ast


def stub(text: str) -> str:
    """The text with every function's body replaced by `pass`."""
    lines = text.splitlines(keepends=True)
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for node in sorted(functions, key=lambda node: -node.lineno):
        body = node.body[0]
        lines[body.lineno - 1 : node.end_lineno] = [f"{' ' * body.col_offset}pass\n"]
    return "".join(lines)
