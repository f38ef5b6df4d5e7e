"""Command lines and settings files.

Every part owns its settings as a frozen dataclass; here they are put together for the environment and the algorithm
that were chosen, so that ``--help`` shows those and nothing else, and any unknown flag or key is an error.
"""

import contextlib
import dataclasses
import difflib
import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro

from runners.command_line import deferred
from runners.command_line.errors import UserError
from runners.command_line.help import short_help
from runners.command_line.plain import load_yaml, plain, read_text
from runners.command_line.small_budget import bounded

T = TypeVar("T")


def parse(
    first: type[T],
    parts: Callable[[T], Mapping[str, Any]] = lambda _: {},
    argv: Sequence[str] | None = None,
    *,
    about: str | None = None,
) -> tuple[T, dict[str, Any]]:
    """Reads a command line in two stages. ``about`` is what ``--help`` says, by default the docstring of ``first``.

    Stage one reads the fields of ``first`` (which environment, which algorithm, …); ``parts`` then names the settings
    classes of what was chosen, or gives an instance where the defaults are others, and stage two reads everything, each
    part under its own prefix. ``--config FILE`` gives defaults from a YAML, TOML or JSON file: fields of ``first`` at
    the top, each part under its name. A static method ``first.adopted`` may turn what other programs call their
    settings into ours, and ``first.usual`` may name other defaults for what stage one has chosen. Raises UserError.
    """
    args, about = list(sys.argv[1:] if argv is None else argv), about or first.__doc__ or ""
    wants_help, wants_all = any(a in ("-h", "--help") for a in args), "--help-all" in args
    file, rest = _config_flag(args)
    rest = joined(rest, lists_of(first))
    known = [a for a in rest if a not in ("-h", "--help", "--help-all")]
    values = read_file(file) if file else {}
    adopted: Callable[[Mapping[str, Any]], dict[str, Any]] = getattr(first, "adopted", dict)
    values = adopted(values)
    top_fields = {f.name for f in dataclasses.fields(first)}  # type: ignore[arg-type]
    values_of_top = {k: v for k, v in values.items() if k in top_fields}
    where = str(file or "defaults")
    top = _build(first, values_of_top, where=where)
    top_type: Any = tyro.conf.configure(tyro.conf.EnumChoicesFromValues)(first)

    def stage_one(default: T) -> Any:
        return tyro.cli(top_type, args=known, default=default, return_unknown_args=True, add_help=False)[0]

    owners: dict[str, tuple[str, type]] = {first.__name__: ("", first)}
    chosen = _one_line(lambda: stage_one(top), owners)
    usual: Callable[[], Mapping[str, Any]] = getattr(chosen, "usual", dict)
    top = _build(first, {**usual(), **values_of_top}, where=where)
    chosen = _one_line(lambda: stage_one(top), owners)
    try:
        named = dict(parts(chosen))
        classes = {name: part if isinstance(part, type) else type(part) for name, part in named.items()}
    except ValueError as error:  # an unknown environment or algorithm
        raise UserError(str(error)) from None
    # Other packages may spell names with dashes; fields and keys of a file have none.
    field_of = {name: name.replace("-", "_") for name in classes}
    known = joined(known, [f"{field_of[name]}.{one}" for name, part in classes.items() for one in lists_of(part)])
    unknown = set(values) - top_fields - set(field_of.values())
    if unknown:
        there = ", ".join(sorted(top_fields | set(field_of.values())))
        raise UserError(f"{file}: unknown key {min(unknown, key=str)!r}; here {there} are known")
    fields: list[tuple[str, Any, Any]] = [
        ("top", Annotated[first, tyro.conf.arg(name="")], dataclasses.field(default=top))
    ]
    for name, part in classes.items():
        given = {} if named[name] is part else plain(named[name])
        block = values.get(field_of[name]) or {}
        if not isinstance(block, Mapping):
            raise UserError(f"{where}: {name} must hold settings by name")
        default: Any = _build(part, {**given, **block}, where=f"{where}: {name}")
        fields.append((field_of[name], part, dataclasses.field(default=default)))
    run: Any = dataclasses.make_dataclass("Run", fields, frozen=True)
    both: Any = tyro.conf.configure(tyro.conf.EnumChoicesFromValues)(run)
    if wants_all:
        with deferred.hidden():
            text = f"{about} --config FILE reads settings from YAML, TOML or JSON."
            tyro.cli(both, args=["--help"], prog=_program(), description=text)
    if wants_help:
        defaults = {name: default.default for name, _, default in fields[1:]}
        choices: Callable[[], Mapping[str, Sequence[str]]] = getattr(first, "choices", dict)
        print(short_help(_program(), about, chosen, defaults, choices()), end="")
        sys.exit(0)
    for name, part in classes.items():
        owners[name.replace("_", "-")] = (f"{name}.", part)
        for field, hint in get_type_hints(part).items():
            if isinstance(hint, type) and dataclasses.is_dataclass(hint):
                owners[f"{name}.{field}".replace("_", "-")] = (f"{name}.{field}.", hint)
    parsed, stray = _one_line(lambda: tyro.cli(both, args=known, return_unknown_args=True), owners)
    if stray:
        flags = [f"--{f.name}" for f in dataclasses.fields(first)]  # type: ignore[arg-type]
        flags += [f"--{name}.{f.name}" for name, part in classes.items() for f in dataclasses.fields(part)]
        raise UserError(_unknown(stray[0], [flag.replace("_", "-") for flag in flags]))
    return bounded(parsed.top), {name: bounded(getattr(parsed, field_of[name])) for name in classes}


def lists_of(settings: type) -> list[str]:
    """The fields of a settings class that hold several values."""
    return [
        name for name, hint in get_type_hints(settings).items()
        if any(get_origin(one) is tuple for one in (hint, *get_args(hint)))
    ]  # fmt: skip


def joined(argv: Sequence[str], lists: Sequence[str]) -> list[str]:
    """The words with each flag of a list once: ``--env wiki --env math`` means ``--env wiki math``."""
    flags = {f"--{name}".replace("_", "-") for name in lists}
    parts: list[list[str]] = []
    of_flag: dict[str, list[str]] = {}
    part: list[str] | None = None
    """That of the list whose values are being read."""
    for word in argv:
        flag, equals, value = word.partition("=")
        if flag in flags:
            if flag not in of_flag:
                of_flag[flag] = [flag]
                parts.append(of_flag[flag])
            part = of_flag[flag]
            part += [value] if equals else []
        elif part is None or word.startswith("-"):
            part = None
            parts.append([word])
        else:
            part.append(word)
    return [word for part in parts for word in part]


def _program() -> str:
    """The program as it was called, without its folder."""
    return " ".join([Path(sys.argv[0].split(" ")[0]).name, *sys.argv[0].split(" ")[1:]])


def _unknown(flag: str, known: list[str]) -> str:
    close = difflib.get_close_matches(flag.split("=")[0].replace("_", "-"), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "--help lists what there is"
    return f"unknown flag {flag}: {hint}"


def _one_line(call: Callable[[], Any], owners: Mapping[str, tuple[str, type]]) -> Any:
    """Calls tyro and turns its boxed complaint into a UserError of one line.

    ``owners``: what tyro calls a settings class, to the prefix of its flags and the class.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), deferred.hidden():
            return call()
    except SystemExit as stop:
        if not stop.code:
            raise
    # Where the output is not Unicode the box is made of - | and +.
    words = (re.sub("-{3,}", "", line).strip("│╭╮╰╯─|+ ") for line in printed.getvalue().splitlines())
    text = " ".join(w for w in words if w and not w.startswith("For full helptext")).partition(" Argument helptext:")[0]
    for boxed in ("Parsing error ", "Value error ", "Missing argument ", "Error parsing "):
        text = text.removeprefix(boxed)
    for pattern, plainly in _PLAINLY:
        text = re.sub(pattern, plainly, text)
    raise UserError(_flagged(text, owners))


def _flagged(text: str, owners: Mapping[str, tuple[str, type]]) -> str:
    """A complaint of a settings class; where it begins with one of its fields, the flag stands in the field's place."""
    part, _, rest = text.partition(": ")
    if part not in owners:
        return text
    prefix, settings = owners[part]
    # Some settings name themselves, also to those who make them without a program.
    rest = rest.removeprefix(f"{prefix[:-1]}: ") if prefix else rest
    word, _, after = re.sub(r"^\w+(: |\.)(?=\w)", "", rest).partition(" ")
    if word in {f.name for f in dataclasses.fields(settings)}:
        return f"--{prefix}{word} ".replace("_", "-") + after
    return f"{prefix[:-1]}: {rest}" if prefix else rest


_PLAINLY = (
    (
        r"^Invalid choice invalid choice ('.*') for argument '(.*?)'\. Expected one of \((.*)\)\.$",
        r"\2 cannot be \1: choose one of \3",
    ),
    (r"^(--\S+): invalid literal for int\(\) with base 10: (.*)$", r"\1 must be a whole number, not \2"),
    (r"^(--\S+): could not convert string to float: (.*)$", r"\1 must be a number, not \2"),
    (r"^\[PATH\]: expected str.*$", "one path is expected, and no flag of another name: --help shows both"),
    (r"^(--\S+): no type matching \S+ could be instantiated from \[(.*?)\]\..*$", r"\1 cannot be \2"),
    (r"^Missing value for argument '(.*?)'\..*$", r"\1 needs a value"),
)
"""Messages of tyro, and how we word them."""


def _config_flag(args: list[str]) -> tuple[Path | None, list[str]]:
    for i, arg in enumerate(args):
        if arg == "--config":
            if i + 1 == len(args):
                raise UserError("--config needs the name of a YAML, TOML or JSON file")
            return Path(args[i + 1]), args[:i] + args[i + 2 :]
        if arg.startswith("--config="):
            return Path(arg.removeprefix("--config=")), args[:i] + args[i + 1 :]
    return None, args


def named(argv: Sequence[str]) -> tuple[set[str], set[str], str]:
    """Settings that a command line names: by flags, and in its settings file; and the name of that file.

    A field of a part is ``part.field``.
    """
    file, rest = _config_flag(list(argv))
    flags = {arg[2:].partition("=")[0].replace("-", "_") for arg in rest if arg.startswith("--")}
    values = read_file(file) if file else {}
    inner = {f"{part}.{key}" for part, block in values.items() if isinstance(block, Mapping) for key in block}
    return flags | {flag.removeprefix("no_") for flag in flags}, {*values, *inner}, file.name if file else ""


def read_file(file: Path) -> dict[str, Any]:
    """The values of a settings file in YAML, TOML or JSON. Raises UserError."""
    try:
        text = read_text(file)
        readers: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads}
        values = readers.get(file.suffix, load_yaml)(text)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except RecursionError:
        raise UserError(f"{file} is nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{file} is not valid YAML, TOML or JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise UserError(f"{file} must hold settings by name")
    return values


def _build(cls: type[T], values: Mapping[str, Any], *, where: str) -> T:
    """A settings object from plain values; unknown names and wrong types raise UserError."""
    hints = get_type_hints(cls)
    fields = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise UserError(f"{where}: unknown key {key!r}; {cls.__name__} has {', '.join(sorted(fields))}")
    plainly: dict[str, Any] = {}
    try:
        for key, value in values.items():
            where_now = f"{where}: {key}"
            plainly[key] = _coerce(value, hints[key])
        where_now = where
        return cls(**plainly)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where_now}: {error}") from None


def _coerce(value: Any, hint: Any) -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _build(hint, value, where=hint.__name__)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if hint is float and type(value) in (int, float, str):
        return float(value)  # YAML reads 2e-3, without a point, as text
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is not a list")
        return tuple(_coerce(v, get_args(hint)[0]) for v in value)
    if hint is Path:
        return Path(value)
    if isinstance(hint, type) and type(value) is not hint:
        raise ValueError(f"{value!r} is not of type {hint.__name__}")
    args = get_args(hint)
    if type(None) in args:
        return None if value is None else _coerce(value, next(a for a in args if a is not type(None)))
    return tuple(value) if isinstance(value, list) else value
