"""The short ``--help``: one sentence for each flag that most people set. ``--help-all`` is tyro's, with every flag.

A settings class shows its fields in the order in which it declares them, so the important ones come first. Its class
variable ``COMMON`` may name the ones to show instead.
"""

import ast
import inspect
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

SHOWN = 6
"""Flags that are shown of the chosen environment and of the chosen algorithm."""
DETAILED = 2
"""Parts whose flags are shown: the first ones. Of the others, only the number of flags is."""
INDENT = " " * 22


def short_help(
    program: str, about: str, top: Any, parts: Mapping[str, Any], choices: Mapping[str, Sequence[str]] | None = None
) -> str:
    """The text of ``--help``.

    ``top`` are the program's own settings and ``parts`` those under a prefix, as instances that hold the defaults.
    ``choices`` lists the names that a flag of ``top`` can take.
    """
    width = min(100, shutil.get_terminal_size((80, 24)).columns)
    lines = [f"usage: {program} [--FLAG VALUE …]", "", *textwrap.wrap(about, width), ""]
    common = getattr(top, "COMMON", None)
    for name, default, text in _flags(top, common):
        names = (choices or {}).get(name, ())
        lines += _entry(f"--{_dashed(name)}", default, text, width)
        lines += textwrap.wrap(", ".join(names), width, initial_indent=INDENT, subsequent_indent=INDENT)
    for prefix, part in list(parts.items())[:DETAILED]:
        own = vars(type(part)).get("__annotations__", {})  # before those of its bases
        shown = sorted(_flags(part, getattr(part, "COMMON", None)), key=lambda flag: flag[0] not in own)[:SHOWN]
        if shown:
            lines += ["", *textwrap.wrap(f"{prefix}: {_first_sentence(type(part).__doc__ or '')}", width)]
        for name, default, text in shown:
            lines += _entry(f"--{prefix}.{_dashed(name)}", default, text, width)
    hidden = [("", len(_flags(top, None)) - len(_flags(top, common)), type(top).__doc__ or "")]
    hidden += [
        (f"{prefix}.", len(_flags(part, None)) - (len(_flags(part, None)[:SHOWN]) if i < DETAILED else 0), part.__doc__)
        for i, (prefix, part) in enumerate(parts.items())
    ]
    further = [one for one in hidden if one[1]]
    lines += ["", "Further flags:"] if further else []
    for prefix, count, text in further:
        about = _first_sentence(text) if prefix else ""
        lines += _entry(f"--{prefix}…", f"{count} flag{'s'[: count > 1]}", about, width)
    lines += ["", *textwrap.wrap("--help-all lists every flag with its full text. --config FILE reads YAML.", width)]
    return "\n".join(lines) + "\n"


def _entry(flag: str, default: str, text: str, width: int) -> list[str]:
    """A flag at the left, its text and default at the right, wrapped."""
    wrapped = textwrap.wrap(f"{text} ({default})" if text else f"({default})", width - len(INDENT))
    head = f"  {flag}"
    if len(head) < len(INDENT) - 1:
        return [head.ljust(len(INDENT)) + wrapped[0], *(INDENT + line for line in wrapped[1:])]
    return [head, *(INDENT + line for line in wrapped)]


def _flags(settings: Any, only: Sequence[str] | None) -> list[tuple[str, str, str]]:
    """(name, default, first sentence) of every flag, or of those named; nested settings count flag by flag."""
    documented = docs(type(settings))
    result = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            result += [(f"{field.name}.{name}", default, text) for name, default, text in _flags(value, None)]
        else:
            result.append((field.name, _shown(value), _first_sentence(documented.get(field.name, ""))))
    return result if only is None else [flag for name in only for flag in result if flag[0] == name]


def docs(settings: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, bases included; without one where its source cannot be read."""
    result: dict[str, str] = {}
    for cls in reversed(settings.__mro__):
        if is_dataclass(cls):
            try:
                body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
            except (OSError, SyntaxError):
                continue
            result |= dict(_documented(body.body if isinstance(body, ast.ClassDef) else ()))
    return result


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, after in pairwise(body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                yield name, " ".join(text.split())


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).split(". ")[0].rstrip(".") + "." if text.strip() else ""


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case Enum():
            return str(value.value)
        case tuple() | list():
            return " ".join(_shown(x) for x in value) or "none"
        case str() | Path():
            return str(value) or "empty"
    return "required" if value is MISSING else f"{value:g}" if isinstance(value, float) else str(value)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
