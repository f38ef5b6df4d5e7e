"""A program as text and as tree: where a node stands, what is around it, which names it may use.

Invariant: the text is printable ASCII with plain line breaks, so rows and columns of the tree are those of the text; it
is never changed.
"""

from __future__ import annotations

import ast

Function = ast.FunctionDef
Loop = ast.For | ast.While


class Text:
    """A source with its tree. Raises SyntaxError for what is no Python, or holds other characters."""

    def __init__(self, source: str) -> None:
        if not source.isascii() or not source.replace("\n", "").replace("\t", "").isprintable():
            raise SyntaxError("only printable ASCII is read")
        self.source = source
        self.tree = ast.parse(source)
        self._starts = [0]
        for line in source.split("\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def start(self, node: ast.AST) -> int:
        """Number of the node's first character."""
        return self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Number of the character after its last one."""
        return self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def of(self, node: ast.AST) -> str:
        """What it says."""
        return self.source[self.start(node) : self.end(node)]

    def gap(self, left: ast.AST, right: ast.AST) -> tuple[int, str]:
        """(where it begins, what it says): the text between two nodes."""
        begin = self.end(left)
        return begin, self.source[begin : self.start(right)]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What the node stands in; None for the module."""
        return self._parents.get(node)

    def above(self, node: ast.AST, kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> ast.AST | None:
        """The nearest node of that kind that it stands in."""
        result = self.parent(node)
        while result is not None and not isinstance(result, kind):
            result = self.parent(result)
        return result

    def in_loop(self, node: ast.AST) -> bool:
        """Whether it is done more than once in a call."""
        return self.above(node, (ast.For, ast.While)) is not None

    def line(self, node: ast.AST) -> tuple[int, int]:
        """Begin and end of the line that it begins in, the break included."""
        return self._starts[node.lineno - 1], self._starts[node.lineno]  # type: ignore[attr-defined]

    def names(self, node: ast.AST) -> list[str]:
        """Variables that have a value where the node stands: arguments, and what earlier lines set, in that order."""
        function = self.above(node, Function)
        if not isinstance(function, Function):
            return []
        result = [argument.arg for argument in function.args.args if argument.arg != "self"]
        result += [
            name.id
            for name in ast.walk(function)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.lineno < node.lineno  # type: ignore[attr-defined]
        ]
        return list(dict.fromkeys(result))

    def attributes(self, node: ast.AST) -> list[str]:
        """What objects of the class hold that the node stands in."""
        inside = self.above(node, ast.ClassDef)
        if inside is None:
            return []
        held = [a for a in ast.walk(inside) if isinstance(a, ast.Attribute) and isinstance(a.ctx, ast.Store)]
        return list(dict.fromkeys(a.attr for a in held))
