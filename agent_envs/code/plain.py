"""A check that a program leaves nothing in a process once its modules are forgotten.

Invariant: in case of doubt it is not. It is a matter of cost, not of trust: to be judged in one process does not help a
submission to forge anything, but what one case left behind could harm another one.
"""

import ast
import builtins
import warnings
from collections.abc import Mapping
from functools import lru_cache

_PURE = frozenset([
    "abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr", "complex", "dict", "divmod",
    "enumerate", "filter", "float", "format", "frozenset", "hash", "hex", "int", "isinstance", "issubclass", "iter",
    "len", "list", "map", "max", "min", "next", "object", "oct", "ord", "pow", "print", "property", "range", "repr",
    "reversed", "round", "set", "slice", "sorted", "staticmethod", "classmethod", "str", "sum", "super", "tuple", "zip",
])  # fmt: skip
_INSIDE = ("_", "gi_", "cr_", "ag_", "f_", "tb_", "co_")
"""How attributes begin that lead to frames and to the interpreter."""


def is_plain(files: Mapping[str, str]) -> bool:
    """Whether its Python files import nothing but each other, and use no name that leads into the interpreter."""
    modules = frozenset(name.removesuffix(".py").partition("/")[0] for name in files if name.endswith(".py"))
    return all(_is_plain(text, modules) for name, text in files.items() if name.endswith(".py"))


@lru_cache(maxsize=4096)
def _is_plain(text: str, modules: frozenset[str]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return all(_allowed(node, modules) for node in ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _allowed(node: ast.AST, modules: frozenset[str]) -> bool:
    match node:
        case ast.Import(names=names):
            return all(alias.name.partition(".")[0] in modules for alias in names)
        case ast.ImportFrom(module=module, level=level):
            return level == 0 and module is not None and module.partition(".")[0] in modules
        case ast.Attribute(attr=attr):
            return not attr.startswith(_INSIDE)
        case ast.MatchClass(kwd_attrs=names):
            return not any(name.startswith(_INSIDE) for name in names)
        case ast.Name(id=name):
            known = getattr(builtins, name, None)
            is_error = isinstance(known, type) and issubclass(known, BaseException)
            return not name.startswith("__") and (name in _PURE or is_error or not hasattr(builtins, name))
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            return False
    return True
