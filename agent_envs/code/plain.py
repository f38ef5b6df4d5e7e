"""A check that a program leaves nothing in a process once its modules are forgotten.

Invariant: in case of doubt it is not. It is a matter of cost, not of trust: to be judged in one process does not help a
submission to forge anything, but what one case left behind could harm another one.
"""

import ast
import builtins
import sys
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
_OPERATORS = """
abs add and bool bytes call ceil complex contains delitem divmod enter eq exit float floor floordiv format ge getitem gt
hash iadd iand ifloordiv ilshift imatmul imod imul index init int invert ior ipow irshift isub iter itruediv ixor le len
length_hint lshift lt matmul missing mod mul ne neg new next or pos pow radd rand rdivmod repr reversed rfloordiv
rlshift rmatmul rmod rmul ror round rpow rrshift rshift rsub rtruediv rxor setitem str sub truediv trunc xor
"""
_METHODS = frozenset(f"__{name}__" for name in _OPERATORS.split())
"""Methods that run when they are asked for only: not at an object's end (``del``), nor in place of an attribute."""


def is_plain(files: Mapping[str, str]) -> bool:
    """Whether its Python files import nothing but each other, and use no name that leads into the interpreter."""
    modules = frozenset(name.removesuffix(".py").partition("/")[0] for name in files if name.endswith(".py"))
    modules -= sys.stdlib_module_names  # some of them are there before any file is looked for
    if any(name.endswith((".so", ".pyc")) for name in files):  # which come before a source or replace it
        return False
    return all(_is_plain(text, modules) for name, text in files.items() if name.endswith(".py"))


@lru_cache(maxsize=4096)
def _is_plain(text: str, modules: frozenset[str]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(text.encode())))  # as it will be read: its first lines may name a code
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    waits = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)
    # A generator that is left waiting in one of these goes on when it is thrown away, which may be in another case.
    ends = any(isinstance(node, ast.Try | ast.TryStar | ast.With) for node in nodes)
    return not (waits and ends) and all(_allowed(node, modules) for node in nodes)


def _allowed(node: ast.AST, modules: frozenset[str]) -> bool:
    match node:
        case ast.Import(names=names):
            return all(alias.name.partition(".")[0] in modules for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            inside = any(alias.name.startswith("_") for alias in names)
            return level == 0 and module is not None and module.partition(".")[0] in modules and not inside
        case ast.Attribute(attr=attr):
            return not attr.startswith(_INSIDE)
        case ast.MatchClass(kwd_attrs=names):
            return not any(name.startswith(_INSIDE) for name in names)
        case ast.Name(id=name):
            known = getattr(builtins, name, None)
            is_error = isinstance(known, type) and issubclass(known, BaseException)
            return not name.startswith("__") and (name in _PURE or is_error or not hasattr(builtins, name))
        case ast.FunctionDef(name=name):
            return not name.startswith("__") or name in _METHODS
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            return False
    return True
